"""Norms on views of grouped channels, with affines along any axis: the result always agrees."""

from __future__ import annotations

import random

import pytest
from small_models import assert_agree, feeds, rewritten, run
from views import Viewed


def check(seed: int, target: str) -> None:
    """Rewrite one model at random, unless onnxruntime cannot run it."""
    proto = Viewed(random.Random(seed).choice).model()
    try:
        run(proto, next(feeds(proto)))
    except Exception:
        return
    result = rewritten(proto, target)
    assert_agree(proto, result.model, tolerance=5e-4)
    again = rewritten(result.model, target)
    assert not again.fused
    assert again.operators == result.operators


@pytest.mark.parametrize("target", ["ort-cpu", "onnx"])
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_whatever_is_rewritten_on_a_view_computes_the_same(target, first):
    for seed in range(first, first + 10):
        check(seed, target)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 4000, 500))
def test_a_long_search_finds_no_view_that_is_rewritten_wrongly(first):
    for seed in range(first, first + 500):
        check(seed, random.Random(seed).choice(["ort-cpu", "onnx", "ort"]))
