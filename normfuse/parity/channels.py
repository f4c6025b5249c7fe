"""Channel by channel: a fault where the result is small beside the rest of it.

judge.py holds every error against the largest values of the tensor. A channel that a scale of 10⁻⁶ makes
small has no weight there, and yet a later operator may enlarge it again. So the bound of judge.py is asked
for once more, with error and sensitivity both taken in one channel c alone, the largest over all other axes:

    |y - y*|_c  <=  (4 + sqrt(N)) · d_c  +  4u · |y*|_c

Kernels may round a small channel with the error of a large one beside it, and a random nudge may by chance
move one channel too little. So a channel that misses is only a suspicion. What decides is the replacement
evaluated in float64, where all that is left of rounding are its stored constants: there, a right rewrite has
an error of about d_c in every channel, whatever its size.

Affines alone are not asked: where a constant and the product of two others cancel, nothing is left of a
channel but their rounding, which is as large for the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normfuse.parity.judge import FEW
from normfuse.parity.settings import Array

# How often a channel must have been moved, over its elements and draws, before its sensitivity is believed.
SAMPLES = 16
# For what so few samples may miss.
SPARE = 4.0


@dataclass(frozen=True)
class Channel:
    """A channel that misses its bound; error and bound over its own size."""

    axis: int
    index: int
    error: float
    bound: float

    @property
    def excess(self) -> float:
        """How many times the bound is missed."""
        return self.error / self.bound if self.bound else np.inf

    def __str__(self) -> str:
        where = f"at index {self.index} of axis {self.axis}"
        return f"{where} it is off by {self.error:.1e} of what stands there (bound {self.bound:.1e})"


def channel_axes(rank: int, spatial: bool) -> tuple[int, ...]:
    """The axes that may be channels; spatial: those behind the second are pixels."""
    return tuple(dict.fromkeys(axis for axis in ((1,) if spatial else (1, rank - 1)) if 1 <= axis < rank))


def samples(shape: Sequence[int], axes: Sequence[int], draws: int) -> int:
    """How often each channel was moved, at least."""
    return min((draws * int(np.prod(shape)) // max(1, shape[axis]) for axis in axes), default=0)


def worst_channel(
    truth: Array,
    moved: Sequence[Array],
    after: Array,
    unit: float,
    growth: float,
    axes: Sequence[int],
) -> Channel | None:
    """The channel that misses its bound most, if any does.

    truth, after: float64, of one shape; growth: how many sensitivities the error may be.
    """
    finite = np.all([np.isfinite(v) for v in (truth, after, *moved)], axis=0)
    expected = np.where(finite, truth, 0)
    off, size = _apart(after, expected, finite), np.abs(expected)
    moves = np.max([_apart(m, expected, finite) for m in moved], axis=0)
    worst: Channel | None = None
    for axis in axes:
        others = tuple(k for k in range(truth.ndim) if k != axis)
        error, move, weight = (np.asarray(v.max(others, initial=0)) for v in (off, moves, size))
        bound = growth * move + FEW * unit * weight + np.finfo(np.float32).tiny
        index = int(np.argmax(error / bound))
        if error[index] > bound[index]:
            own = max(float(weight[index]), float(np.finfo(np.float32).tiny))
            found = Channel(axis, index, float(error[index]) / own, float(bound[index]) / own)
            worst = max((c for c in (worst, found) if c is not None), key=lambda c: c.excess)
    return worst


def _apart(value: Any, expected: Any, finite: Any) -> Any:
    """Distances, 0 where something is no number."""
    return np.abs(np.where(finite, value, 0) - expected)
