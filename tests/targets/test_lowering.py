"""Which operator a norm becomes: by target, opset and type, and what is left where there is none."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser
from small_models import FUSED, assert_agree, f32, model, rewritten, vector

from normfuse.errors import UsageError
from normfuse.targets import for_providers, resolve

EPSILON = f32(1e-3)
LAYER = (
    "m = ReduceMean(x, last) d = Sub(x, m) s = Mul(d, d) v = ReduceMean(s, last) ve = Add(v, e) r = Sqrt(ve) "
    "n = Div(d, r) k = Mul(n, g) y = Add(k, b)"
)
RMS = "s = Mul(x, x) v = ReduceMean(s, last) ve = Add(v, e) r = Sqrt(ve) n = Div(x, r) y = Mul(n, g)"
INSTANCE = LAYER.replace("last", "spatial")
CHANNELS = LAYER.replace("last", "one")


def spelled(
    text: str, dtype: str = "float", opset: int = 17, shape: str = "4,6", **options: Any
) -> onnx.ModelProto:
    """One of the norms above; axes are an attribute below opset 18."""
    kind = {"double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}.get(
        dtype, np.float32
    )
    spatial = "spatial" in text or "one" in text
    sizes = (6, 1, 1) if spatial else (6,)
    constants: dict[str, Any] = {"e": np.array(2.0**-10, kind), "g": vector(*sizes).astype(kind)}
    if "b)" in text:
        constants["b"] = vector(*sizes, seed=1).astype(kind)
    axes = {"last": [-1], "spatial": [2, 3], "one": [1]}
    for name, values in axes.items():
        if f", {name})" in text and opset >= 18:
            constants[name] = np.array(values)
        elif f", {name})" in text:
            text = text.replace(f"ReduceMean(x, {name})", f"ReduceMean<axes={values}>(x)")
            text = text.replace(f"ReduceMean(s, {name})", f"ReduceMean<axes={values}>(s)")
    return model(text, constants, x=f"{dtype}[{shape}]", opset=opset, **options)


def emitted(proto: onnx.ModelProto) -> tuple[list[str], int]:
    """The fused operators of a model and its opset."""
    return [n.op_type for n in proto.graph.node if n.op_type in FUSED], proto.opset_import[0].version


@pytest.mark.parametrize(
    ("text", "opset", "target", "operator", "after"),
    [
        (LAYER, 11, "ort-cpu", "LayerNormalization", None),
        (LAYER, 17, "ort-cpu", "LayerNormalization", 17),
        (LAYER, 21, "ort", "LayerNormalization", 21),
        (LAYER, 11, "onnx", "LayerNormalization", 17),
        (LAYER, 18, "onnx", "LayerNormalization", 18),
        (RMS, 11, "ort-cpu", "SimplifiedLayerNormalization", 11),
        (RMS, 17, "ort", "SimplifiedLayerNormalization", 17),
        (RMS, 22, "ort-cuda", "SimplifiedLayerNormalization", 22),
        (RMS, 23, "ort-cpu", "RMSNormalization", 23),
        (RMS, 23, "ort", "RMSNormalization", 23),
        (RMS, 13, "onnx", "RMSNormalization", 23),
        (RMS, 24, "onnx", "RMSNormalization", 24),
    ],
)
def test_the_operator_for_a_target_and_an_opset(text, opset, target, operator, after):
    proto = spelled(text, opset=opset)
    result = rewritten(proto, target)
    operators, version = emitted(result.model)
    assert operators == [operator]
    assert after is None or version == after
    assert [s.operator for s in result.fused] == [operator]
    assert_agree(proto, result.model)
    if target == "onnx":
        onnx.checker.check_model(result.model, full_check=True)


@pytest.mark.parametrize("text", [LAYER, RMS], ids=["layer", "rms"])
@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
def test_the_result_is_as_exact_as_its_type(text, dtype):
    for opset in (17, 23):
        proto = spelled(text, dtype, opset)
        result = rewritten(proto)
        assert len(result.fused) == 1
        assert_agree(proto, result.model)


@pytest.mark.parametrize("text", [LAYER, RMS], ids=["layer", "rms"])
def test_the_standard_computes_statistics_in_float32_so_double_is_left(text):
    result = rewritten(spelled(text, "double", 23), "onnx")
    assert not result.fused
    assert result.reasons == {"no-kernel"}


def test_an_rms_norm_in_bfloat16_is_said_in_what_the_cpu_provider_has():
    assert emitted(rewritten(spelled(RMS, "bfloat16", 23)).model)[0] == ["SimplifiedLayerNormalization"]
    assert emitted(rewritten(spelled(RMS, "bfloat16", 23), "ort-cuda").model)[0] == ["RMSNormalization"]


def test_an_instance_norm_in_double_has_no_kernel_of_its_own_and_loses_no_digit():
    proto = spelled(INSTANCE, "double", shape="2,6,3,4")
    result = rewritten(proto)
    assert result.operators["InstanceNormalization"] == 0
    assert result.fused or result.reasons == {"no-kernel"}
    assert_agree(proto, result.model)


@pytest.mark.parametrize("target", ["ort-cpu", "onnx", "ort"])
def test_an_instance_norm_is_the_same_operator_everywhere(target):
    for opset in (11, 17, 22):
        proto = spelled(INSTANCE, opset=opset, shape="2,6,3,4")
        result = rewritten(proto, target)
        assert emitted(result.model) == (["InstanceNormalization"], opset)
        assert_agree(proto, result.model)


@pytest.mark.parametrize("target", ["ort-cpu", "onnx"])
def test_other_axes_go_between_transposes(target):
    proto = spelled(CHANNELS, shape="2,6,3,4")
    result = rewritten(proto, target)
    assert result.operators == {"Transpose": 2, "LayerNormalization": 1}
    assert_agree(proto, result.model)


def test_the_opset_is_not_raised_where_that_inserts_operators():
    text = spelled(LAYER, opset=11)
    softmax = onnx.helper.make_node("Softmax", ["y"], ["z"], axis=0)
    text.graph.node.append(softmax)
    text.graph.output[0].name = "z"
    result = rewritten(text)
    assert emitted(result.model) == (["LayerNormalization"], 11)
    assert result.operators["Softmax"] == 1
    assert result.operators["Reshape"] == 0
    assert_agree(text, result.model)
    standard = rewritten(text, "onnx")
    assert emitted(standard.model) == (["LayerNormalization"], 17)
    assert_agree(text, standard.model)


def test_a_model_that_cannot_be_raised_is_left_on_the_standard_target():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13, "local": 1]> g (float[4,6] x) => (float[4,6] y) '
        "<float e = {0.001}> { w = local.twice(x) m = ReduceMean<axes=[-1]>(w) d = Sub(w, m) s = Mul(d, d) "
        "v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) r = Sqrt(ve) y = Div(d, r) } "
        '<domain: "local", opset_import: ["": 13]> twice (p) => (q) { q = Add(p, p) }'
    )
    result = rewritten(proto, "onnx")
    assert not result.fused
    assert result.reasons == {"opset-too-low"}
    assert len(rewritten(proto).fused) == 1


def test_the_models_own_scale_and_bias_are_used_again():
    result = rewritten(spelled(LAYER))
    (node,) = result.model.graph.node
    assert list(node.input) == ["x", "g", "b"]
    assert sorted(t.name for t in result.model.graph.initializer) == ["b", "g"]


def test_a_scale_that_callers_may_override_is_not_used_as_a_constant():
    proto = spelled(LAYER, overridable=["g"])
    result = rewritten(proto)
    assert result.fused[0].outside == "overridable-initializer"
    assert result.operators == {"LayerNormalization": 1, "Mul": 1, "Add": 1}
    assert_agree(proto, result.model)


@pytest.mark.parametrize("name", ["e", "last"])
def test_what_callers_may_override_is_no_epsilon_and_no_axis(name):
    proto = spelled(RMS, opset=18, overridable=[name])
    result = rewritten(proto)
    assert not result.fused
    assert result.reasons == {"overridable-initializer"}
    assert_agree(proto, result.model)


@pytest.mark.parametrize("text", [LAYER, RMS], ids=["layer", "rms"])
def test_up_to_ir_3_initializers_are_constants_and_stay_inputs(text):
    proto = spelled(text, opset=8, ir_version=3)
    result = rewritten(proto)
    assert len(result.fused) == 1
    names = {t.name for t in result.model.graph.initializer}
    assert {v.name for v in result.model.graph.input} == {"x"} | names
    assert result.model.ir_version == 3
    assert_agree(proto, result.model)


def test_two_sites_on_one_input_have_parameters_of_their_own():
    text = LAYER + " h = Mul(n, g2) z = Add(h, b)"
    proto = model(
        text.replace("ReduceMean(x, last)", "ReduceMean<axes=[-1]>(x)").replace(
            "ReduceMean(s, last)", "ReduceMean<axes=[-1]>(s)"
        ),
        {"e": EPSILON, "g": vector(6), "g2": vector(1, 6, seed=3), "b": vector(6, seed=1)},
        x="float[4,6]",
        outputs="float[4,6] y, float[4,6] z",
    )
    result = rewritten(proto)
    assert result.operators == {"LayerNormalization": 2}
    assert_agree(proto, result.model)


def test_new_names_do_not_collide_with_names_of_the_model():
    proto = spelled(LAYER.replace("k = ", "taken = ").replace("(k", "(taken"))
    proto.graph.initializer[1].name = "y/scale"
    for node in proto.graph.node:
        node.input[:] = ["y/scale" if name == "g" else name for name in node.input]
        if node.op_type == "Mul" and "n" in node.input:
            node.name = "y/LayerNormalization"
    result = rewritten(proto)
    assert len({t.name for t in result.model.graph.initializer}) == len(result.model.graph.initializer)
    assert_agree(proto, result.model)


def test_a_site_that_is_named_is_skipped():
    proto = spelled(LAYER)
    result = rewritten(proto, skip=["y"])
    assert not result.fused
    assert result.reasons == {"skipped"}
    assert_agree(proto, result.model)


def test_targets_have_names_and_follow_the_providers():
    assert resolve("onnx").standard
    assert for_providers(["cpu"]).name == "ort-cpu"
    assert for_providers(["cuda"]).name == "ort-cuda"
    assert for_providers(["cuda", "cpu"]).name == "ort"
    with pytest.raises(UsageError, match="ort-cpu"):
        resolve("tensorrt")
