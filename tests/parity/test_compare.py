"""Distances: what they are measured against, ulps, and non-finite values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from normfuse.parity.compare import distance, is_degenerate, magnitude
from normfuse.parity.dtypes import roundoff
from normfuse.parity.noise import nudge, nudge_halfway

TYPES = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", TYPES)
def test_a_nudge_is_one_ulp_and_keeps_zeros(dtype: type) -> None:
    values = np.array([0.0, 1.0, -3.0, 1e-3, 250.0, np.inf, np.nan], dtype)
    moved = nudge(values, np.random.default_rng(0))
    found = distance(values, moved)
    assert found.ulp == 1
    assert not found.mismatch
    assert moved[0] == 0
    assert 0 < abs(nudge_halfway(values, np.random.default_rng(0))[1] - 1) <= 2 * roundoff(dtype)


def test_a_nudge_leaves_integers_alone() -> None:
    ids = np.arange(5)
    assert nudge(ids, np.random.default_rng(0)) is ids


def test_small_differences_of_large_values_are_measured_against_the_large() -> None:
    before = np.array([1000.0, 1e-3], np.float32)
    after = np.array([1000.0, 2e-3], np.float32)
    assert distance(before, after).relative == pytest.approx(1e-6, rel=1e-3)


def test_a_huge_fill_value_does_not_hide_the_rest() -> None:
    before = np.concatenate([np.full(5, -3e38), np.ones(20)]).astype(np.float32)
    after = before.copy()
    after[-1] = 1.5
    assert distance(before, after).relative == pytest.approx(0.5)
    assert magnitude(before)[0] > 1e38


def test_the_same_nan_is_equal_and_a_one_sided_one_is_named() -> None:
    before = np.array([1, np.nan, np.inf, 2], np.float32)
    assert distance(before, before.copy()).non_finite == 2
    after = np.array([1, np.nan, -np.inf, np.nan], np.float32)
    found = distance(before, after)
    assert found.mismatch == "inf became -inf at [2] (2 of 4 such elements)"
    assert found.one_sided == 2


@pytest.mark.parametrize(
    ("after", "text"),
    [(np.zeros((2, 1), np.float32), "shape [2] became [2, 1]"), (np.zeros(2), "type float32 became float64")],
)
def test_shape_and_type_must_agree(after: np.ndarray, text: str) -> None:
    assert distance(np.zeros(2, np.float32), after).mismatch == text


def test_integers_count_the_share_that_differs() -> None:
    found = distance(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 9]))
    assert (found.relative, found.absolute) == (0.25, 5)
    assert distance(np.array(["a", "b"]), np.array(["a", "c"])).relative == 0.5


def test_the_cosine_is_of_finite_values_of_any_size() -> None:
    a = np.array([1e200, -1e200, np.nan])
    assert distance(a, a).cosine == pytest.approx(1)
    assert distance(np.array([1.0, 0.0]), np.array([0.0, 1.0])).cosine == 0
    assert distance(np.zeros(3), np.zeros(3)).cosine == 1


def test_zero_and_minus_zero_are_no_ulp_apart() -> None:
    assert distance(np.array([0.0], np.float32), np.array([-0.0], np.float32)).ulp == 0


@pytest.mark.parametrize(
    ("values", "degenerate"),
    [([1, 1, 1], True), ([np.nan, np.inf], True), ([1, 2], False), ([1], False), ([], False)],
)
def test_degenerate_results(values: list[float], degenerate: bool) -> None:
    assert is_degenerate(np.array(values, np.float32)) is degenerate
