"""Several inputs in one evaluation: only where the rows of a batch do not mix, and with the same truths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_models import floats, layer_norm, model

from normfuse.parity.extract import extract
from normfuse.parity.model import Model
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.sides import Sides
from normfuse.parity.together import truths

RNG = np.random.default_rng(0)
FEEDS = [{"x": RNG.normal(size=(2, 3, 16)).astype(np.float32) * scale + 3} for scale in (1, 0, 1e-3, 100)]
AFFINE = floats({"g": RNG.normal(size=16), "b": RNG.normal(size=16)})


def sides_of(body: str) -> Sides:
    proto = model("float[A, B, C] x", "float[D, E, F] y", body, AFFINE)
    piece = extract(Model(Path("m"), proto), Boundary("", "x", "y"))
    return Sides.of(piece, piece, FEEDS[0], Settings())


def test_rows_that_do_not_mix_are_evaluated_together() -> None:
    sides = sides_of(layer_norm("x", "y", 1e-5, "g", "b"))
    found = truths(sides, FEEDS, ["x"], np.random.default_rng(0))
    for feed, truth in zip(FEEDS, found, strict=True):
        assert truth is not None
        alone = sides.in_float64(feed, 2, np.random.default_rng(0))
        assert np.array_equal(truth.value, alone.value)
        assert truth.terms == alone.terms == 16
        assert [moved.shape for moved in truth.moved] == [(2, 3, 16)] * 2


@pytest.mark.parametrize(
    "body",
    [
        "m = ReduceMean<axes=[0]>(x) y = Sub(x, m)",
        "m = ReduceMean(x) y = Sub(x, m)",
        "s = Shape(x) f = Cast<to=1>(s) n = ReduceProd(f) m = ReduceMean<axes=[-1]>(x) y = Div(m, n)",
        "t = Transpose<perm=[1, 0, 2]>(x) m = ReduceMean<axes=[-1]>(t) y = Sub(t, m)",
        "q = Constant<value_ints=[2, 48]>() r = Reshape(x, q) m = ReduceMean<axes=[-1]>(r) y = Sub(r, m)",
    ],
    ids=["batch statistics", "all axes", "counts the rows", "batch elsewhere", "fixed shape"],
)
def test_where_they_mix_each_is_evaluated_alone(body: str) -> None:
    found = truths(sides_of(body), FEEDS, ["x"], np.random.default_rng(0))
    assert found == [None] * len(FEEDS)


def test_a_linear_piece_is_joined_too() -> None:
    sides = sides_of("y = Mul(x, g)")
    for feed, truth in zip(FEEDS, truths(sides, FEEDS, ["x"], np.random.default_rng(0)), strict=True):
        assert truth is not None
        assert truth.before is not None
        assert np.array_equal(truth.before, feed["x"] * AFFINE["g"])


def test_one_input_alone_is_not_joined() -> None:
    found = truths(sides_of("y = Mul(x, g)"), FEEDS[:1], ["x"], np.random.default_rng(0))
    assert found == [None]
