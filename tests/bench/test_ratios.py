"""From paired times to a ratio and its interval, and when a difference is one."""

from __future__ import annotations

import random

import pytest

from normfuse.bench.ratios import Ratio, is_faster, is_slower, paired, quartiles, rank

QUIET = Ratio(1.0, 0.999, 1.001, 0.999, 1.001)


def noisy(base: float, spread: float, rounds: int = 60, seed: int = 0) -> list[float]:
    """Times around `base` with a relative spread."""
    rng = random.Random(seed)
    return [base * (1 + spread * rng.uniform(0, 1)) for _ in range(rounds)]


def test_a_contender_of_half_the_time_is_twice_as_fast() -> None:
    ratio = paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 2.0)


def test_the_ratio_is_taken_round_by_round() -> None:
    # The medians of the two are equal; in every single round the second takes twice as long.
    assert paired([1.0, 2.0, 4.0], [2.0, 4.0, 8.0]).median == 0.5


def test_drift_of_the_machine_cancels() -> None:
    drift = [1 + 0.02 * i for i in range(50)]
    ratio = paired([1.1 * d for d in drift], [1.0 * d for d in drift])
    assert ratio.low == pytest.approx(1.1)
    assert ratio.high == pytest.approx(1.1)


def test_one_outlier_moves_neither_the_median_nor_the_interval() -> None:
    times = [1.0] * 20
    assert paired(times, [*times[:-1], 100.0]) == paired(times, times)


def test_equal_contenders_in_noise_are_neither_faster_nor_slower() -> None:
    first, again, other = (noisy(1.0, 0.3, seed=k) for k in range(3))
    ratio, control = paired(first, other), paired(first, again)
    assert not is_faster(ratio, control)
    assert not is_slower(ratio, control)


def test_a_difference_larger_than_the_noise_is_seen() -> None:
    first, again, other = noisy(1.0, 0.3, seed=1), noisy(1.0, 0.3, seed=2), noisy(0.6, 0.3, seed=3)
    assert is_faster(paired(first, other), paired(first, again))
    assert is_slower(paired(other, first), paired(first, again))


def test_no_difference_is_smaller_than_that_of_the_first_against_itself() -> None:
    ratio = Ratio(1.03, 1.02, 1.04, 1.02, 1.04)
    assert is_faster(ratio, QUIET)
    assert not is_faster(ratio, Ratio(1.0, 0.95, 1.01, 0.95, 1.01))  # the control is off by 5 % downwards
    assert not is_faster(ratio, Ratio(1.0, 0.99, 1.05, 0.99, 1.05))


def test_half_a_percent_is_no_difference_on_any_machine() -> None:
    assert not is_faster(Ratio(1.004, 1.004, 1.004, 1.004, 1.004), Ratio(1, 1, 1, 1, 1))


def test_an_interval_that_reaches_1_is_no_difference() -> None:
    assert not is_faster(Ratio(1.5, 0.99, 2.0, 1.2, 1.8), QUIET)


@pytest.mark.parametrize(("count", "expected"), [(5, 1), (6, 1), (8, 1), (9, 2), (20, 6), (100, 40)])
def test_the_rank_is_that_of_the_tables(count: int, expected: int) -> None:
    assert rank(count) == expected


def test_the_interval_holds_the_median_in_19_of_20_cases() -> None:
    rng = random.Random(7)
    held = 0
    for _ in range(400):
        ratio = paired([rng.expovariate(1.0) for _ in range(25)], [1.0] * 25)
        held += ratio.low <= 0.6931 <= ratio.high  # ln 2 is the median of the distribution
    assert held >= 375


def test_no_rounds_are_no_ratio() -> None:
    with pytest.raises(ValueError, match="no rounds"):
        paired([], [])


def test_the_quartiles_of_one_value_are_that_value() -> None:
    assert quartiles([3.0]) == (3.0, 3.0)
