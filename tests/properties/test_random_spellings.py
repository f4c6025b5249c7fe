"""Norms and near-norms written at random: the result always agrees, and hardly a true norm is missed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from small_models import Result, assert_agree, rewritten, session
from spelling import FLAWS, Spelled, spell
from tally import Tally, close, tally

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
@settings(max_examples=1_500)
def test_a_long_search_finds_nothing_that_is_rewritten_wrongly(data):
    pick = Drawn(data)
    checked(spell(pick, pick(("", *FLAWS))))


def assert_holds(total: Tally) -> None:
    """No graph computes something else, and of 100 true norms at least 95 are recognised."""
    assert total.disagreements == []
    assert len(total.missed) <= 0.05 * total.norms, total.missed


def test_of_the_true_norms_at_least_95_of_100_are_fused():
    assert_holds(tally(range(480)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_240, 2_560))
def test_of_ten_thousand_graphs_every_one_agrees_and_95_of_100_norms_are_fused(first):
    assert_holds(tally(range(first, first + 2_560)))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnx", "ort"])
def test_so_it_is_for_other_targets(target):
    assert_holds(tally(range(20_000, 21_000), target))


def test_a_tally_sees_a_result_that_differs():
    truth, before = np.linspace(-1, 1, 8), np.linspace(-1, 1, 8, dtype=np.float32)
    assert close(truth, before, before)
    assert not close(truth, before, before * np.float32(1.001))
    assert not close(truth, before, np.where(before > 0, np.nan, before).astype(np.float32))


@pytest.mark.parametrize("flaw", ["exponent-3", "other-numerator", "other-variance", "epsilon-vector"])
def test_a_flaw_that_makes_it_no_norm_leaves_every_statistic(flaw):
    for seed in range(12):
        spelled = spell(random.Random(seed).choice, flaw)
        result = checked(spelled)
        assert result is None or not is_fused(result)
        assert result is None or result.reasons
