"""Asks the CPU first whether inputs fit a model: another provider may not look.

Inputs are tried out: sizes that a model may not take, images cut to a corner. onnxruntime's own kernels
refuse what does not fit. OpenVINO does not: it multiplies [1, 7, 7] by a weight of [16, 16], and reads beyond
the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from normfuse.parity.sessions import Runner
from normfuse.parity.settings import Feed


class Guarded:
    """A runner that is given inputs of new shapes only after the CPU has taken them."""

    def __init__(self, runner: Runner, cpu: Runner) -> None:
        self._runner, self._cpu = runner, cpu
        self._taken: set[tuple[tuple[int, ...], ...]] = set()
        self.outputs = runner.outputs

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Run once; raises the CPU's RuntimeRefusalError."""
        shapes = tuple(np.shape(value) for value in feed.values())
        if shapes not in self._taken:
            self._cpu.run(feed)
            self._taken.add(shapes)
        return self._runner.run(feed, names)
