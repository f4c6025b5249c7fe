"""Whose fault a failed certificate is: the rewrite's, or that of the kernel which computes it.

The replacement's nodes are evaluated in float64 as well. If they hold there on every input that failed, they
say the right thing, and the runtime computes them wrongly. The rewrite is taken back all the same, for the
result would be wrong where it is used; but it is the kernel that is named.

    onnxruntime before 1.27, CPU: LayerNormalization takes E[x²] - E[x]² in float32, and is wrong in the first
    digit where rows have mean 1,000 and deviation 1, NaN at mean 30,000
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from normfuse.parity.extract import Piece, operators
from normfuse.parity.providers import CPU, provider_name
from normfuse.parity.reference import CannotEvaluateError, Float64
from normfuse.parity.runtime import runtime
from normfuse.parity.sessions import RuntimeRefusalError
from normfuse.parity.settings import Array, Feed, Settings, on_cpu
from normfuse.parity.sides import Sides

# Kernels that are known to lose digits: operator, provider, the version that repaired it.
REPAIRED = (("LayerNormalization", CPU, (1, 27)),)


def kernels_fault(
    piece: Piece, sides: Sides, failed: Sequence[Mapping[str, Array]], settings: Settings, rng: Generator
) -> str:
    """What to say of a replacement that fails on some inputs, if its kernel is at fault; else "".

    piece: the replacement; failed: the inputs that it fails on.
    """
    try:
        exact = _InFloat64(Float64.of(piece.proto(failed[0])), sides.output, sides.run_after(failed[0]).dtype)
        right = replace(sides, after=exact)
        if not all(right.judge(feed, rng).holds for feed in failed):
            return ""
    except CannotEvaluateError:
        return ""
    where, kinds = provider_name(settings.provider), operators(piece) - {"Constant"}
    listed = ", ".join(sorted(kinds))
    text = f"not the rewrite's fault: in float64 it holds, but onnxruntime's {listed} on {where} does not"
    version = _version()
    for kind, provider, repaired in REPAIRED:
        if kind in kinds and provider == where and version < repaired:
            text += f"; onnxruntime {'.'.join(map(str, repaired))} and later compute it right"
    return text


def who_refuses(
    old: Piece, new: Piece, feed: Mapping[str, Array], settings: Settings, error: RuntimeRefusalError
) -> str:
    """What to say of a replacement that does not run; of a provider's refusal if the CPU runs it."""
    name = provider_name(settings.provider)
    if name != CPU:
        try:
            Sides.of(old, new, feed, on_cpu(settings)).run_after(feed)
        except RuntimeRefusalError:
            pass
        else:
            return f"not the rewrite's fault: the CPU runs it, but {name} does not: {error}"
    return f"the replacement does not run: {error}"


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in str(runtime().__version__).split(".")[:2])


class _InFloat64:
    """A piece evaluated in float64, and rounded once to its output's type."""

    def __init__(self, exact: Float64, output: str, dtype: Any) -> None:
        self._exact, self._dtype = exact, dtype
        self.outputs: tuple[str, ...] = (output,)

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Run once."""
        with np.errstate(over="ignore"):
            return {self.outputs[0]: self._exact.output(feed).astype(self._dtype)}
