"""Data types: what may be absorbed without one rounding too many, and what the fused node is typed as."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto
from small_models import assert_agree, f32, model, rewritten, vector
from spelled import (
    BETA,
    CONSTANTS,
    EPSILON,
    GAMMA,
    assert_fused,
    attributes,
    fused_nodes,
    layer_norm,
    parameters,
    rms_norm,
)

HALF = {"e": np.array(1e-3, np.float16), "g": GAMMA.astype(np.float16), "b": BETA.astype(np.float16)}
WIDE = {"e": np.array(2.0**-10), "g": GAMMA.astype(np.float64), "b": BETA.astype(np.float64)}


def elements(proto: onnx.ModelProto) -> set[int]:
    """Element types of the initializers of a model."""
    return {t.data_type for t in proto.graph.initializer if t.data_type not in (TensorProto.INT64,)}


def test_a_norm_in_half_precision_stays_in_it():
    epsilon = float(np.float16(1e-3))
    result = assert_fused(layer_norm(HALF, "float16[4,6]"), "LayerNorm", epsilon=epsilon, scale=HALF["g"])
    assert elements(result.model) == {TensorProto.FLOAT16}
    assert_fused(rms_norm(HALF, "float16[4,6]"), "RMSNorm", epsilon=epsilon, scale=HALF["g"])


@pytest.mark.parametrize(("stored", "value"), [(1e-5, float(np.float16(1e-5))), (1e-12, 0.0)])
def test_epsilon_is_what_is_stored_not_what_was_meant(stored, value):
    proto = layer_norm(HALF | {"e": np.array(stored, np.float16)}, "float16[4,6]")
    result = rewritten(proto)
    (node,) = fused_nodes(result.model)
    assert np.float32(attributes(node)["epsilon"]) == np.float32(value)
    assert_agree(proto, result.model)


def test_a_norm_in_double_precision_needs_an_epsilon_that_is_a_float32():
    assert_fused(layer_norm(WIDE, "double[4,6]"), "LayerNorm", epsilon=2.0**-10, scale=GAMMA)
    result = rewritten(layer_norm(WIDE | {"e": np.array(1e-3)}, "double[4,6]"))
    assert not result.fused
    assert result.reasons == {"epsilon-not-representable"}


def test_an_epsilon_that_float64_has_rounded_is_still_a_float32():
    proto = rms_norm(
        WIDE | {"six": np.array(6.0)},
        "double[4,6]",
        square="t = ReduceL2<axes=[-1]>(x)",
        variance="s = Mul(t, t) v = Div(s, six)",
    )
    assert_fused(proto, "RMSNorm", epsilon=2.0**-10, scale=GAMMA)


def test_a_cast_to_double_beside_the_norm_does_not_matter():
    proto = layer_norm(
        affine="k = Mul(n, g) y = Add(k, b) z = Cast<to=11>(x)", outputs="float[4,6] y, double[4,6] z"
    )
    result = rewritten(proto)
    assert result.operators == {"LayerNormalization": 1, "Cast": 1}
    assert_agree(proto, result.model)


def test_a_norm_of_float_computed_in_double_is_left():
    constants = {k: v.astype(np.float64) for k, v in CONSTANTS.items()}
    proto = layer_norm(
        constants,
        mean="w = Cast<to=11>(x) m = ReduceMean<axes=[-1]>(w)",
        centre="d = Sub(w, m)",
        affine="k = Mul(n, g) u = Add(k, b) y = Cast<to=1>(u)",
    )
    assert_agree(proto, rewritten(proto).model)


LLAMA = (
    "w = Cast<to=1>(x) s = Mul(w, w) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) r = Sqrt(ve) i = "
    "Reciprocal(r) "
    "n = Mul(w, i) h = Cast<to=10>(n) y = Mul(g, h)"
)
GPT_OSS = LLAMA.replace("h = Cast<to=10>(n) y = Mul(g, h)", "k = Mul(g, n) y = Cast<to=10>(k)")


def test_a_cast_before_the_scale_is_a_norm_in_half_precision():
    proto = model(LLAMA, {"e": f32(1e-3), "g": HALF["g"]}, x="float16[4,6]")
    result = assert_fused(proto, "RMSNorm", epsilon=EPSILON, scale=HALF["g"])
    assert elements(result.model) == {TensorProto.FLOAT16}


def test_a_scale_that_half_precision_would_round_is_kept_in_float32():
    proto = model(GPT_OSS, {"e": f32(1e-3), "g": GAMMA}, x="float16[4,6]")
    result = rewritten(proto)
    assert result.fused
    (node,) = fused_nodes(result.model)
    (scale, *_) = parameters(result.model, node)
    if scale.dtype == np.float32:
        np.testing.assert_array_equal(scale, GAMMA)
    else:  # the scale stays outside
        np.testing.assert_array_equal(scale, np.ones(6, np.float16))
        assert result.operators["Mul"] == 1
    assert_agree(proto, result.model)


def test_a_whole_norm_between_casts():
    proto = layer_norm(
        {"g": HALF["g"].astype(np.float32), "b": HALF["b"].astype(np.float32)},
        "float16[4,6]",
        mean="w = Cast<to=1>(x) m = ReduceMean<axes=[-1]>(w)",
        centre="d = Sub(w, m)",
        affine="k = Mul(n, g) u = Add(k, b) y = Cast<to=10>(u)",
    )
    result = rewritten(proto)
    assert len(result.fused) == 1
    assert result.operators["Sqrt"] == 0
    assert_agree(proto, result.model)


def test_a_cast_below_the_type_of_x_is_another_value():
    proto = layer_norm(
        {"e": f32(1e-3)}, mean="m0 = ReduceMean<axes=[-1]>(x) m1 = Cast<to=10>(m0) m = Cast<to=1>(m1)"
    )
    result = rewritten(proto)
    assert "LayerNormalization" not in result.operators
    assert_agree(proto, result.model)


@pytest.mark.parametrize("half", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_one_plus_a_half_precision_weight_is_rounded_where_the_model_rounds_it(half):
    weight = (GAMMA * 0.01).astype(half)
    wide = "w = Cast<to=1>(g) w1 = Add(w, one)"
    narrow = "w1h = Add(g, oneh) w1 = Cast<to=1>(w1h)"
    for text, expected in (
        (wide, weight.astype(np.float32) + 1),
        (narrow, (weight + np.array(1, half)).astype(np.float32)),
    ):
        constants = {"g": weight, "one": f32(1.0), "oneh": np.array(1, half)}
        proto = rms_norm(constants, affine=text + " y = Mul(n, w1)")
        result = rewritten(proto)
        (node,) = fused_nodes(result.model)
        np.testing.assert_array_equal(parameters(result.model, node)[0], expected)


@pytest.mark.parametrize("write", [layer_norm, rms_norm])
def test_a_bfloat16_norm_is_typed_as_one(write):
    constants = {k: v.astype(ml_dtypes.bfloat16) for k, v in CONSTANTS.items()}
    result = rewritten(write(constants, "bfloat16[4,6]", opset=23))
    assert len(result.fused) == 1
    assert elements(result.model) == {TensorProto.BFLOAT16}


def test_scale_and_input_never_differ_in_type():
    proto = model(
        "w = Cast<to=1>(x) m = ReduceMean<axes=[-1]>(w) d = Sub(w, m) s = Mul(d, d) v = "
        "ReduceMean<axes=[-1]>(s) "
        "ve = Add(v, e) r = Sqrt(ve) n = Div(d, r) k = Mul(n, g) y = Add(k, b)",
        CONSTANTS | {"g": vector(6, seed=7)},
        x="float16[4,6]",
        outputs="float[4,6] y",
    )
    result = rewritten(proto)
    assert len(result.fused) == 1
    assert_agree(proto, result.model)
