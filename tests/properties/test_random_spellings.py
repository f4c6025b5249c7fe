"""Norms and near-norms written at random: the result always agrees, and hardly a true norm is missed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from small_models import Result, assert_agree, rewritten, session
from spelling import FLAWS, Spelled, spell

STATISTICS = ("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2", "Sqrt", "Pow", "Reciprocal")
TOLERANCE = {TensorProto.FLOAT: 5e-4, TensorProto.FLOAT16: 2e-2, TensorProto.DOUBLE: 1e-9}


class Drawn:
    """A choice made by hypothesis."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def __call__(self, options: Sequence[Any]) -> Any:
        return options[self.data.draw(st.integers(0, len(options) - 1))]


def loads(proto: onnx.ModelProto) -> bool:
    """Whether onnxruntime accepts a model; it has no common base class of its errors."""
    try:
        session(proto)
    except Exception:
        return False
    return True


def checked(spelled: Spelled) -> Result | None:
    """The rewritten model, in which nothing more is found; None for a flaw that makes a model not load."""
    proto = spelled.model()
    if not loads(proto):
        assert spelled.flaw, "a norm that does not load"
        return None
    result = rewritten(proto)
    assert_agree(proto, result.model, tolerance=TOLERANCE[spelled.dtype])
    if result.fused:
        again = rewritten(result.model)
        assert not again.fused
        assert again.operators == result.operators
    return result


def is_fused(result: Result) -> bool:
    """Whether nothing of a norm is left but the fused node."""
    return bool(result.fused) and not any(result.operators[op] for op in STATISTICS)


@given(st.data())
@settings(max_examples=120)
def test_whatever_is_rewritten_computes_the_same(data):
    pick = Drawn(data)
    checked(spell(pick, pick(("", *FLAWS))))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=3_000)
def test_a_long_search_finds_nothing_that_is_rewritten_wrongly(data):
    pick = Drawn(data)
    checked(spell(pick, pick(("", *FLAWS))))


def share_of_fused(seeds: Sequence[int]) -> float:
    """How many of the true norms with these seeds end as one fused node."""
    results = [checked(spell(random.Random(seed).choice)) for seed in seeds]
    return sum(result is not None and is_fused(result) for result in results) / len(results)


def test_of_the_true_norms_at_least_95_of_100_are_fused():
    assert share_of_fused(range(120)) >= 0.95


@pytest.mark.slow
def test_of_many_true_norms_at_least_95_of_100_are_fused():
    assert share_of_fused(range(1000, 3000)) >= 0.95


@pytest.mark.parametrize("flaw", ["exponent-3", "other-numerator", "other-variance", "epsilon-vector"])
def test_a_flaw_that_makes_it_no_norm_leaves_every_statistic(flaw):
    for seed in range(12):
        spelled = spell(random.Random(seed).choice, flaw)
        result = checked(spelled)
        assert result is None or not is_fused(result)
        assert result is None or result.reasons
