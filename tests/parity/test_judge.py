"""The verdict on one site and one input: bounds, improvements, and what may be NaN."""

from __future__ import annotations

import numpy as np
import pytest

from normfuse.parity.judge import Judgement, judge
from normfuse.parity.sites import conclude

U = 2.0**-24
TRUTH = np.array([1.0, 2.0, 3.0])


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def judged(before: np.ndarray, after: np.ndarray, truth: np.ndarray = TRUTH, spread: float = U) -> Judgement:
    return judge(truth, [truth * (1 + spread)], before, after, U, terms=16)


def test_an_error_within_sensitivity_holds() -> None:
    assert judged(f32(1, 2, 3), f32(1, 2, 3.000001)).holds
    assert not judged(f32(1, 2, 3), f32(1, 2, 3.00001)).holds


def test_the_bound_grows_with_sensitivity_and_with_the_length_of_sums() -> None:
    near, far = judged(f32(1, 2, 3), f32(1, 2, 3)), judged(f32(1, 2, 3), f32(1, 2, 3), spread=100 * U)
    assert far.bound > 20 * near.bound
    longer = judge(TRUTH, [TRUTH * (1 + U)], f32(1, 2, 3), f32(1, 2, 3), U, terms=10_000)
    assert longer.bound > 5 * near.bound


def test_closer_to_the_truth_than_an_original_outside_the_bound_is_improved() -> None:
    found = judged(f32(1, 2, 3.1), f32(1, 2, 3))
    assert found.improved
    assert conclude([("offset", found)]).result == "improved"


def test_as_far_off_as_the_original_is_no_failure_and_no_improvement() -> None:
    found = judged(f32(1, 2, 3.1), f32(1, 2, 2.9))
    assert found.holds
    assert not found.improved


def test_a_finite_truth_that_becomes_nan_fails() -> None:
    found = judged(f32(1, 2, 3), f32(1, 2, np.nan))
    assert not found.holds
    assert "a finite value became nan" in found.problem


def test_a_nan_of_the_original_where_the_truth_is_finite_may_be_repaired() -> None:
    found = judged(f32(1, 2, np.nan), f32(1, 2, 3))
    assert found.improved
    assert found.error_before == np.inf


def test_a_nan_of_both_sides_is_as_wrong_as_before() -> None:
    assert judged(f32(1, 2, np.nan), f32(1, 2, np.nan)).holds


def test_a_true_nan_may_not_become_a_number() -> None:
    truth = np.array([1.0, 2.0, np.nan])
    assert judged(f32(1, 2, np.nan), f32(1, 2, np.nan), truth).holds
    assert "nan became the number 0" in judged(f32(1, 2, np.nan), f32(1, 2, 0), truth).problem


def test_a_nan_that_hangs_on_the_last_digit_may_be_anything() -> None:
    truth = np.array([1.0, 2.0, np.nan])
    found = judge(truth, [np.array([1.0, 2.0, 7.0])], f32(1, 2, np.nan), f32(1, 2, 5), U, 4)
    assert found.holds


def test_a_truth_beyond_the_type_is_infinite_in_it() -> None:
    truth = np.array([1.0, 1e6])
    half = np.array([1, np.inf], np.float16)
    assert judge(truth, [truth], half, half, 2.0**-11, 1).holds
    assert not judge(truth, [truth], half, np.array([1, 60000], np.float16), 2.0**-11, 1).holds


@pytest.mark.parametrize("after", [np.ones((3, 1), np.float32), np.ones(3, np.float64)])
def test_another_shape_or_type_fails(after: np.ndarray) -> None:
    assert not judged(f32(1, 2, 3), after).holds


def test_nothing_finite_is_inconclusive() -> None:
    nothing = np.full(3, np.nan)
    found = judge(nothing, [nothing], f32(*nothing), f32(*nothing), U, 1)
    assert conclude([("zero", found)]).result == "inconclusive"


def test_the_verdict_shows_the_input_that_decided() -> None:
    good, bad = judged(f32(1, 2, 3), f32(1, 2, 3)), judged(f32(1, 2, 3), f32(1, 2, 4))
    verdict = conclude([("normal", good), ("tiny variance", bad), ("zero", good)])
    assert (verdict.result, verdict.detail) == ("failed", "tiny variance")
    assert verdict.error_after == pytest.approx(1 / 3)


def test_a_number_in_the_place_of_a_nan_is_improved_however_far_off_it_is() -> None:
    found = judged(f32(np.nan, np.nan, np.nan), f32(1, 2, 3.1))
    assert found.improved
    verdict = conclude([("constant", found)])
    assert (verdict.result, verdict.error_before) == ("improved", np.inf)
    assert verdict.error_after <= verdict.bound


def test_a_repaired_nan_is_no_licence_for_the_other_elements() -> None:
    assert not judged(f32(1, 2, np.nan), f32(1, 2.1, 3)).holds
    assert judged(f32(1, 2.1, np.nan), f32(1, 2.1, 3.1)).holds
