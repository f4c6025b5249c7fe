"""The sums of a piece: their length, and the type that they are computed in."""

from __future__ import annotations

import numpy as np
import pytest
from parity_models import floats, layer_norm, model

from normfuse.parity.reference import Float64
from normfuse.parity.sums import reduction_size, sum_unit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 16)).astype(np.float32)
AFFINE = floats({"g": RNG.normal(size=16), "b": RNG.normal(size=16)})
HALF, SINGLE = 2.0**-11, 2.0**-24


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("y = ReduceMean<axes=[-1]>(x)", 16),
        ("y = ReduceMean<axes=[0, 1, 2]>(x)", 96),
        ("y = LayerNormalization<axis=-1>(x, g, b)", 16),
        ("y = MatMul(x, w)", 16),
        ("y = Neg(x)", 1),
    ],
)
def test_the_longest_sum_is_counted(body: str, size: int) -> None:
    weights = {**AFFINE, **floats({"w": RNG.normal(size=(16, 4))})}
    piece = Float64.of(model("float[B, S, 16] x", "float[A, C, D] y", body, weights))
    assert reduction_size(piece.proto, piece.run({"x": X})) == size


@pytest.mark.parametrize(
    ("body", "unit"),
    [
        ("w = Cast<to=1>(x) " + layer_norm("w", "n", 1e-5, "g", "b") + " y = Cast<to=10>(n)", SINGLE),
        ("y = LayerNormalization<axis=-1>(x, h, h)", SINGLE),
        ("y = LayerNormalization<axis=-1, stash_type=10>(x, h, h)", HALF),
        ("y = ReduceMean<axes=[-1]>(x)", HALF),
        ("w = Cast<to=1>(x) m = ReduceSum<keepdims=1>(w) n = Cast<to=10>(m) y = ReduceL2(n)", HALF),
        ("w = Unknown(x) y = ReduceMean<axes=[-1]>(w)", HALF),
        ("y = Neg(x)", HALF),
    ],
)
def test_half_precision_may_be_summed_in_single(body: str, unit: float) -> None:
    weights = {**AFFINE, "h": np.ones(16, np.float16)}
    assert sum_unit(model("float16[B, S, 16] x", "float16[A, C, D] y", body, weights), HALF) == unit


def test_single_precision_is_summed_in_its_own_type() -> None:
    assert sum_unit(model("float[B] x", "float[B] y", "y = ReduceMean<axes=[0]>(x)"), SINGLE) == SINGLE
