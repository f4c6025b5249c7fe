"""The bound of a site, and the verdict on one input.

Truth. y* = f(x, c) is the original in float64; x are the site's inputs, c its constants.

Sensitivity. d = max |f(x(1+δ), c(1+δ')) - f(x, c)| with δ, δ' = ±u at random, u the unit roundoff of the
data type: how far the truth moves when everything it is computed from is rounded once more. It holds the
site's conditioning: for a LayerNorm at mean 1,000 it is 1,000 times what it is at mean 0, for a fold it holds
Σ|w||x|.

Bound. A backward stable evaluation equals the exact function at inputs that moved by at most g(N)·u, where N
is the number of terms of its longest sum. For sums of N terms g(N) <= N, and sqrt(N) with near certainty
(Higham and Mary, 2019, "A new approach to probabilistic rounding error analysis"). A fused operator has few
roundings outside its sums. So

    |y - y*|  <=  (4 + sqrt(N)) · d  +  4u · |y*|

Where the original says that its sums are of a finer type than what goes in and out (float16, cast to float32
around a norm), they are so in a right replacement as well. d is what the coarse roundings do; those of the
sums are as many times smaller as the unit of their type is, u' / u, and so is their share: 4 + sqrt(N)·u'/u.

Measured on onnxruntime 1.32, CPU, N from 8 to 16,384: (y - y*)/d is 0.5 to 4 on random rows and up to
sqrt(N)/2 on constant rows; E[x²]-E[x]² at mean 1,000 has 2,000 to 80,000, a wrong epsilon 10^6.

A replacement may also be as far off as the original is, within a factor of 2: then nothing has become worse.
Where the original gives no number for a finite truth it is off by infinity, and any number is closer; there
the replacement is improved, provided that it is no worse at the other elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normfuse.parity.compare import magnitude
from normfuse.parity.settings import Array

FEW = 4.0
NO_WORSE = 2.0


@dataclass(frozen=True)
class Judgement:
    """One input: distances to the truth over the magnitude of the result, the bound, what else is wrong.

    repaired: there are numbers where the original has NaN or infinity for a finite truth, and all other
    elements hold.
    """

    error_before: float
    error_after: float
    bound: float
    problem: str = ""
    conclusive: bool = True
    repaired: bool = False

    @property
    def holds(self) -> bool:
        """Whether the replacement is as close to the truth as it must be."""
        return not self.problem and self.error_after <= self.allowed

    @property
    def improved(self) -> bool:
        """Whether the original misses the bound, or has no number, and the replacement does better."""
        return self.holds and (self.repaired or self.error_before > self.bound >= self.error_after)

    @property
    def allowed(self) -> float:
        """The bound, or what the original itself is off by."""
        if self.repaired:
            return max(self.bound, self.error_after)
        return max(self.bound, NO_WORSE * self.error_before) if np.isfinite(self.error_before) else self.bound


def judge(
    truth: Array,
    moved: Sequence[Array],
    before: Array,
    after: Array,
    unit: float,
    terms: int,
    least: float = 0.0,
    finer: float = 1.0,
) -> Judgement:
    """Hold original and replacement against the truth and its sensitivity.

    truth: float64; moved: the truth again for nudged inputs; unit: unit roundoff; terms: longest sum;
    least: what the sensitivity is at least; finer: unit roundoff of the sums, over `unit`.
    """
    if after.shape != before.shape:
        return Judgement(0, np.inf, 0, f"shape {list(before.shape)} became {list(after.shape)}")
    if after.dtype != before.dtype:
        return Judgement(0, np.inf, 0, f"type {before.dtype} became {after.dtype}")
    if before.size == 0:
        return Judgement(0, 0, 0, conclusive=False)
    moved = [_as_stored(m.astype(np.float64), before) for m in moved]
    expected = _as_stored(truth, before)
    b, a = before.astype(np.float64), after.astype(np.float64)
    stable = np.all([np.isfinite(m) == np.isfinite(expected) for m in moved], axis=0)
    finite = np.isfinite(expected) & stable
    problem = _non_finite_problem(expected, stable, b, a)
    if not finite.any():
        return Judgement(0, 0, 0, problem, conclusive=bool(problem))
    weight = magnitude(expected)
    moves = max(least, *(_error(m, expected, weight, finite) for m in moved))
    bound = growth(terms, finer) * moves + FEW * unit
    both = finite & (np.isfinite(a) | np.isfinite(b))
    before_off, after_off = (_error(v, expected, weight, both) for v in (b, a))
    others = both & np.isfinite(b)
    kept = max(bound, NO_WORSE * _error(b, expected, weight, others))
    repaired = bool((both & ~others).any()) and _error(a, expected, weight, others) <= kept
    return Judgement(before_off, after_off, bound, problem, repaired=repaired)


def growth(terms: int, finer: float = 1.0) -> float:
    """How many sensitivities a right result may be off by.

    terms: of the longest sum; finer: unit roundoff of the sums, over that of the sensitivity.
    """
    return FEW + finer * float(np.sqrt(terms))


def sensitivity(truth: Array, moved: Sequence[Array]) -> float:
    """How far the truth moves by a nudge, over the magnitude of the result."""
    finite = np.all([np.isfinite(m) for m in (truth, *moved)], axis=0)
    return max(_error(m, truth, magnitude(truth), finite) for m in moved)


def _as_stored(truth: Array, like: Array) -> Any:
    """The truth, infinite where the output's type cannot hold it."""
    with np.errstate(over="ignore"):
        stored = truth.astype(like.dtype).astype(np.float64)
    return np.where(np.isinf(stored) & np.isfinite(truth), stored, truth)


def _error(value: Any, expected: Any, weight: Any, where: Any) -> float:
    """The largest relative distance; infinite where a finite truth was not computed."""
    if not where.any():
        return 0.0
    with np.errstate(all="ignore"):
        gap = np.abs(value - expected) / weight
    gap = np.where(np.isfinite(value), gap, np.inf)
    return float(gap[where].max())


def _non_finite_problem(expected: Any, stable: Any, before: Any, after: Any) -> str:
    """A finite truth may not turn NaN or infinite, nor a NaN that the original rightly gives into a number.

    Where the truth itself is finite only by the last digit (0/0 of a constant row), nothing is asked.
    """
    lost = stable & np.isfinite(expected) & ~np.isfinite(after) & np.isfinite(before)
    if lost.any():
        return f"a finite value became {after[lost][0]} ({int(lost.sum())} of {lost.size})"
    made = stable & ~np.isfinite(expected) & ~np.isfinite(before) & np.isfinite(after)
    if made.any():
        return f"{before[made][0]} became the number {after[made][0]:.3g} ({int(made.sum())} of {made.size})"
    return ""
