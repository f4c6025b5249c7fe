"""Values inside a norm that are used elsewhere keep their producers; it is fused while that is less work."""

from __future__ import annotations

import onnx
import pytest
from small_models import assert_agree, findings, rewritten, vector
from spelled import CONSTANTS, layer_norm

FUSED_ANYWAY = {"m": "float[4,1]", "d": "float[4,6]", "n": "float[4,6]", "k": "float[4,6]"}
NOT_WORTH_IT = {"v": "float[4,1]", "ve": "float[4,1]", "r": "float[4,1]"}


def escaping(value: str, type_: str) -> onnx.ModelProto:
    return layer_norm(
        affine=f"k = Mul(n, g) y = Add(k, b) z = Tanh({value})", outputs=f"float[4,6] y, {type_} z"
    )


@pytest.mark.parametrize("value", FUSED_ANYWAY)
def test_what_costs_little_is_computed_beside_the_fused_node(value):
    proto = escaping(value, FUSED_ANYWAY[value])
    result = rewritten(proto)
    assert result.operators["LayerNormalization"] == 1
    assert result.operators["Sqrt"] == 0
    assert_agree(proto, result.model)
    assert not rewritten(result.model).fused


@pytest.mark.parametrize("value", NOT_WORTH_IT)
def test_a_statistic_that_is_needed_keeps_the_norm(value):
    proto = escaping(value, NOT_WORTH_IT[value])
    result = rewritten(proto)
    assert not result.fused
    assert result.reasons == {"extra-consumer"}
    assert_agree(proto, result.model)


@pytest.mark.parametrize("value", NOT_WORTH_IT | FUSED_ANYWAY)
def test_a_body_that_captures_a_value_is_a_consumer(value):
    type_ = (NOT_WORTH_IT | FUSED_ANYWAY)[value]
    proto = layer_norm(
        affine=f"k = Mul(n, g) y = Add(k, b) z = If(c) <then_branch = t () => ({type_} p) "
        f"{{ p = Tanh({value}) }}, "
        f"else_branch = f () => ({type_} q) {{ q = Abs({value}) }}>",
        outputs=f"float[4,6] y, {type_} z",
        inputs={"c": "bool"},
    )
    result = rewritten(proto)
    assert bool(result.fused) == (value in FUSED_ANYWAY)
    assert_agree(proto, result.model)


@pytest.mark.parametrize("value", NOT_WORTH_IT | FUSED_ANYWAY)
def test_a_value_that_is_an_output_keeps_its_name(value):
    type_ = (NOT_WORTH_IT | FUSED_ANYWAY)[value]
    proto = layer_norm(outputs=f"float[4,6] y, {type_} {value}")
    assert_agree(proto, rewritten(proto).model)


def test_the_scaled_norm_may_feed_two_branches():
    proto = layer_norm(affine="k = Mul(n, g) z = Add(k, b) y = Mul(k, z)")
    result = rewritten(proto)
    assert result.operators == {"LayerNormalization": 1, "Add": 1, "Mul": 1}
    assert_agree(proto, result.model)


def test_a_residual_behind_the_norm_stays():
    proto = layer_norm(affine="k = Mul(n, g) y = Add(k, x)")
    result = rewritten(proto)
    assert result.operators == {"LayerNormalization": 1, "Add": 1}
    assert result.fused[0].outside is None
    assert_agree(proto, result.model)


STACKED = {
    "layer_of_layer": "m2 = ReduceMean<axes=[-1]>(k) d2 = Sub(k, m2) s2 = Mul(d2, d2) v2 = "
    "ReduceMean<axes=[-1]>(s2) "
    "ve2 = Add(v2, e) r2 = Sqrt(ve2) y = Div(d2, r2)",
    "rms_of_layer": "s2 = Mul(k, k) v2 = ReduceMean<axes=[-1]>(s2) ve2 = Add(v2, e) r2 = Sqrt(ve2) "
    "y = Div(k, r2)",
}


@pytest.mark.parametrize("second", STACKED)
def test_a_norm_of_a_norm_is_two_nodes(second):
    proto = layer_norm({"g": vector(6)}, affine="k = Mul(n, g) " + STACKED[second])
    result = rewritten(proto)
    assert sum(result.operators.values()) == 2
    assert len(result.fused) == 2
    assert_agree(proto, result.model)


def test_a_norm_inside_a_body_is_found_there():
    norm = (
        "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve "
        "= Add(v, e) "
        "r = Sqrt(ve) p = Div(d, r)"
    )
    for opset in (13, 17):
        for target in ("ort-cpu", "onnx"):
            proto = layer_norm(
                CONSTANTS,
                opset=opset,
                inputs={"c": "bool"},
                **dict.fromkeys(("mean", "centre", "square", "variance", "epsilon", "root"), ""),
                affine=f"y = If(c) <then_branch = t () => (float[4,6] p) {{ {norm} }}, "
                "else_branch = f () => (float[4,6] q) { q = Neg(x) }>",
            )
            result = rewritten(proto, target)
            assert result.operators["LayerNormalization"] == 1
            assert result.operators["Sqrt"] == 0
            assert_agree(proto, result.model)


def test_the_refusal_names_the_node_and_what_escapes():
    (refusal,) = findings(escaping("r", "float[4,1]")).refusals
    assert refusal.reason == "extra-consumer"
    assert "'r'" in refusal.detail
    assert refusal.kind == "LayerNorm"
