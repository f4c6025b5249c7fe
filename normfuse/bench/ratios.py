"""How many times as fast: the median of paired ratios, with an interval that assumes no distribution.

In each round every contender has one turn. A round gives one ratio, time of the first over time of the other:
above 1 the other is faster. What the machine does to a whole round (its clock, a neighbour) is in both times
and cancels; a single disturbed turn is an outlier, which a median does not see.

Interval: the order statistics r(k) and r(n+1-k) enclose the median of the ratios with a probability of at
least 95 %, where k is the largest number with 2·P(Bin(n, 1/2) < k) <= 5 % (Conover, "Practical
Nonparametric Statistics", chapter on quantiles). Below six rounds no such k exists: then it is their range.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
# No machine is so quiet that less than this is a difference.
LEAST_DIFFERENCE = 0.005


@dataclass(frozen=True)
class Ratio:
    """Time of the first over time of the other.

    median: of the paired ratios; low, high: the interval of the median; q1, q3: their quartiles.
    """

    median: float
    low: float
    high: float
    q1: float
    q3: float

    @property
    def excess(self) -> float:
        """How far from 1 the interval reaches, as a factor: what a control shows is no difference."""
        return max(self.high, 1 / self.low)


def paired(first: Sequence[float], other: Sequence[float]) -> Ratio:
    """The ratio of two contenders from their times, in seconds, in the rounds that both took part in.

    Raises ValueError for no rounds, or for unequal numbers of them.
    """
    ratios = sorted(a / b for a, b in zip(first, other, strict=True))
    if not ratios:
        raise ValueError("there are no rounds to compare")
    k = rank(len(ratios))
    q1, q3 = quartiles(ratios)
    return Ratio(statistics.median(ratios), ratios[k - 1], ratios[-k], q1, q3)


def rank(count: int) -> int:
    """The k of the interval for a number of rounds; 1, the range, where there are too few."""
    tail, k = 0.0, 0
    while k < count:
        tail += math.comb(count, k) * 0.5**count
        if 2 * tail > 1 - CONFIDENCE:
            break
        k += 1
    return max(k, 1)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile."""
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def is_faster(ratio: Ratio, control: Ratio, least: float = LEAST_DIFFERENCE) -> bool:
    """Whether a contender is faster than the first, beyond what the first is against itself.

    The whole interval must lie above 1 + least, and above all that the control's interval reaches.
    """
    return ratio.low > max(1 + least, control.excess)


def is_slower(ratio: Ratio, control: Ratio, least: float = LEAST_DIFFERENCE) -> bool:
    """Whether a contender is slower than the first, beyond what the first is against itself."""
    return ratio.high < 1 / max(1 + least, control.excess)
