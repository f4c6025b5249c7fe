"""Graphs that only resemble a normalization stay as they are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from small_models import assert_agree, f32, model, rewritten
from spelled import layer_norm, left_alone

LOOK_ALIKES = {
    "magnitude_of_a_spectrum": model(
        "a = Mul(x, x) b = Mul(z, z) s = Add(a, b) y = Sqrt(s)", x="float[4,6]", z="float[4,6]"
    ),
    "generalized_mean_pooling": model(
        "c = Clip(x, e) q = Pow(c, p) v = ReduceMean<axes=[2,3]>(q) y = Pow(v, i)",
        {"e": f32(1e-6), "p": f32(3.0), "i": f32(1 / 3)},
        x="float[2,3,4,5]",
        outputs="float[2,3,1,1] y",
    ),
    "quadratic_mean_pooling": model(
        "c = Clip(x, e) q = Pow(c, p) v = ReduceMean<axes=[2,3]>(q) y = Pow(v, i)",
        {"e": f32(1e-6), "p": f32(2.0), "i": f32(0.5)},
        x="float[2,3,4,5]",
        outputs="float[2,3,1,1] y",
    ),
    "masked_mean_pooling": model(
        "a = Mul(x, k) s = ReduceSum(a, i) c = ReduceSum(k, i) cc = Clip(c, e) y = Div(s, cc)",
        {"e": f32(1e-9), "i": np.array([1])},
        x="float[2,4,6]",
        k="float[2,4,1]",
        outputs="float[2,1,6] y",
    ),
    "min_max_scaling": model(
        "a = ReduceMin<axes=[-1]>(x) b = ReduceMax<axes=[-1]>(x) d = Sub(x, a) r = Sub(b, a) re = "
        "Add(r, e) y = Div(d, re)",
        {"e": f32(1e-3)},
        x="float[4,6]",
    ),
    "softmax": model(
        "a = ReduceMax<axes=[-1]>(x) d = Sub(x, a) f = Exp(d) s = ReduceSum(f, i) y = Div(f, s)",
        {"i": np.array([-1])},
        x="float[4,6]",
    ),
    "cosine_of_two_tensors": model(
        "p = Mul(x, z) s = ReduceSum(p, i) a = ReduceL2<axes=[-1]>(x) b = ReduceL2<axes=[-1]>(z) c "
        "= Mul(a, b) "
        "ce = Add(c, e) y = Div(s, ce)",
        {"e": f32(1e-3), "i": np.array([-1])},
        x="float[4,6]",
        z="float[4,6]",
        outputs="float[4,1] y",
    ),
    "deviation_as_a_feature": model(
        "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve "
        "= Add(v, e) y = Sqrt(ve)",
        {"e": f32(1e-3)},
        x="float[4,6]",
        outputs="float[4,1] y",
    ),
    "share_of_the_energy": model(
        "q = Mul(x, x) s = ReduceSum(q, i) se = Add(s, e) y = Div(q, se)",
        {"e": f32(1e-3), "i": np.array([-1])},
        x="float[4,6]",
    ),
    "distance_to_the_mean": model(
        "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) t = ReduceSum(s, i) y = Sqrt(t)",
        {"i": np.array([-1])},
        x="float[4,6]",
        outputs="float[4,1] y",
    ),
    "fano_factor": model(
        "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve "
        "= Add(v, e) y = Div(d, ve)",
        {"e": f32(1e-3)},
        x="float[4,6]",
    ),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_look_alikes_stay(name):
    left_alone(LOOK_ALIKES[name])


def test_rounding_through_quantization_is_kept():
    proto = model(
        "m0 = ReduceMean<axes=[-1]>(x) mq = QuantizeLinear(m0, sc, zp) m = DequantizeLinear(mq, "
        "sc, zp) d = Sub(x, m) "
        "s0 = Mul(d, d) sq = QuantizeLinear(s0, sc, zp) s = DequantizeLinear(sq, sc, zp) v = "
        "ReduceMean<axes=[-1]>(s) "
        "ve = Add(v, e) r = Sqrt(ve) y = Div(d, r)",
        {"e": f32(1e-3), "sc": f32(0.02), "zp": np.array(128, np.uint8)},
        x="float[4,6]",
    )
    assert "exponent!=2" not in left_alone(proto).reasons


def test_a_quantized_scale_stays_outside():
    proto = layer_norm(
        {"gq": np.arange(6).astype(np.int8), "sc": f32(0.02), "zp": np.array(0, np.int8)},
        affine="gf = DequantizeLinear(gq, sc, zp) y = Mul(n, gf)",
    )
    result = rewritten(proto)
    assert result.operators == Counter(["LayerNormalization", "DequantizeLinear", "Mul"])
    assert_agree(proto, result.model)
