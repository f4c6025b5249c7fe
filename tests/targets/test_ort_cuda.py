"""What is said for the CUDA provider: residual adds and SiLU in the norm, GroupNorm in float16.

The CPU provider has the Skip operators, so those results run here; GroupNorm is evaluated by a reference of
its own, and runs on a GPU in the tests that are marked so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from small_models import assert_agree, assert_close, feeds, mentioned, model, rewritten, run, vector

from normfuse.parity.reference import evaluator
from normfuse.pipeline.rewrite import rewrite
from normfuse.targets import kernels, resolve

LAYER = (
    "m = ReduceMean<axes=[-1]>(h) d = Sub(h, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) "
    "r = Sqrt(ve) n = Div(d, r) k = Mul(n, g) y = Add(k, b)"
)
RMS = "s = Mul(h, h) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) r = Sqrt(ve) n = Div(h, r) y = Mul(n, g)"
GROUP = (
    "xv = Reshape(x, view) m = ReduceMean<axes=[2]>(xv) d = Sub(xv, m) s = Mul(d, d) "
    "v = ReduceMean<axes=[2]>(s) ve = Add(v, e) r = Sqrt(ve) n = Div(d, r) f = Reshape(n, back) "
    "k = Mul(f, gc) w = Add(k, bc)"
)
SILU = " q = Sigmoid(w) y = Mul(w, q)"
SHAPE = "[2,4,8]"
HALF, SINGLE = np.float16, np.float32
NAMES = {HALF: "float16", SINGLE: "float"}


def residual(norm: str, dtype: Any = HALF, add: str = "h = Add(x, z) ", **options: Any) -> onnx.ModelProto:
    """A norm behind a residual add."""
    numbers = {name: vector(8, seed=k).astype(dtype) for k, name in enumerate(("g", "b", "c"))}
    numbers |= {"e": np.array(2.0**-10, dtype), "wide": vector(4, 8, seed=5).astype(dtype)}
    body = add + norm
    kind = NAMES[dtype] + SHAPE
    return model(body, mentioned(body, numbers), x=kind, z=kind, **options)


def images(ending: str = "", dtype: Any = HALF, channels: int = 8, groups: int = 2) -> onnx.ModelProto:
    """A GroupNorm of images."""
    body = GROUP.replace("w = Add", "w = Add" if ending else "y = Add") + ending
    constants = {
        "e": np.array(2.0**-10, dtype),
        "view": np.array([0, groups, -1]),
        "back": np.array([0, channels, 6, 5]),
        "gc": vector(channels, 1, 1).astype(dtype),
        "bc": vector(channels, 1, 1, seed=1).astype(dtype),
    }
    return model(body, constants, x=f"{NAMES[dtype]}[2,{channels},6,5]")


def nodes(proto: onnx.ModelProto, op_type: str) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if node.op_type == op_type]


@pytest.mark.parametrize(
    ("norm", "dtype", "operator"),
    [
        (LAYER, HALF, "SkipLayerNormalization"),
        (RMS, HALF, "SkipSimplifiedLayerNormalization"),
        (RMS, SINGLE, "SkipSimplifiedLayerNormalization"),
    ],
)
def test_a_residual_add_is_part_of_the_norm(norm, dtype, operator):
    proto = residual(norm, dtype)
    result = rewritten(proto, "ort-cuda")
    assert result.operators == {operator: 1}
    assert [(s.kind, s.operator, s.lowering) for s in result.fused] == [
        ("LayerNorm" if norm is LAYER else "RMSNorm", operator, "skip-layer-norm")
    ]
    assert_agree(proto, result.model, tolerance=1e-2 if dtype == HALF else 0)
    assert rewritten(result.model, "ort-cuda").model == result.model


def test_a_layer_norm_in_float32_keeps_its_add_for_the_kernel_loses_digits():
    proto = residual(LAYER, SINGLE)
    assert rewritten(proto, "ort-cuda").operators == {"Add": 1, "LayerNormalization": 1}
    done = rewrite(ir.from_proto(proto), resolve("ort-cuda"), lambda *_: None, {"y": "skip-layer-norm"})
    assert done.choices["y"] == ("layer-norm", "as-spelled", "skip-layer-norm")
    assert [n.op_type for n in done.model.graph] == ["SkipLayerNormalization"]


def test_halves_are_only_added_inside_where_the_kernel_sums_in_float32(monkeypatch):
    monkeypatch.setattr(kernels, "release", lambda: "1.24.2")
    monkeypatch.setattr(kernels, "installed", lambda: {})
    assert rewritten(residual(RMS), "ort-cuda").operators["Add"] == 1
    assert rewritten(residual(RMS, SINGLE), "ort-cuda").operators["Add"] == 0


@pytest.mark.parametrize("norm", [LAYER, RMS], ids=["layer", "rms"])
@pytest.mark.parametrize("add", ["t = Add(x, c) h = Add(t, z) ", "t = Add(c, x) h = Add(z, t) "])
def test_a_constant_bias_before_the_add_is_taken_in_too(norm, add):
    proto = residual(norm, add=add)
    result = rewritten(proto, "ort-cuda")
    assert len(result.operators) == 1
    (node,) = result.model.graph.node
    assert list(node.input)[-1] == "c"
    assert set(node.input[:2]) == {"x", "z"}
    assert_agree(proto, result.model, tolerance=2e-2)


@pytest.mark.parametrize("norm", [LAYER, RMS], ids=["layer", "rms"])
def test_a_sum_that_is_used_again_is_the_fourth_output(norm):
    proto = residual(norm.replace("y =", "w =") + " y = Mul(w, h)")
    result = rewritten(proto, "ort-cuda")
    (node,) = [n for n in result.model.graph.node if n.op_type.startswith("Skip")]
    assert list(node.output)[1:] == ["", "", "h"]
    assert result.operators["Add"] == 0
    assert_agree(proto, result.model, tolerance=2e-2)


def test_a_sum_that_is_an_output_of_the_graph_keeps_its_name():
    proto = residual(LAYER, outputs=f"float16{SHAPE} h, float16{SHAPE} y")
    result = rewritten(proto, "ort-cuda")
    assert result.operators == {"SkipLayerNormalization": 1}
    assert_agree(proto, result.model, tolerance=1e-2)


def test_a_norm_that_the_model_has_already_takes_in_its_add():
    proto = residual("y = LayerNormalization<axis=2, epsilon=0.001>(h, g)")
    result = rewritten(proto, "ort-cuda")
    assert result.operators == {"SkipLayerNormalization": 1}
    assert [(s.kind, s.status, s.detail) for s in result.sites] == [
        ("Residual", "fused", "with the residual add before it")
    ]
    assert_agree(proto, result.model, tolerance=1e-2)


@pytest.mark.parametrize(
    "add",
    ["h = Add(x, wide) ", "zz = ReduceMean<axes=[0]>(z) h = Add(x, zz) ", "h = Mul(x, z) "],
    ids=["constant", "broadcast", "product"],
)
def test_what_is_no_residual_add_stays_before_the_norm(add):
    result = rewritten(residual(LAYER, add=add), "ort-cuda")
    assert result.operators["LayerNormalization"] == 1


def test_a_residual_that_failed_its_check_is_not_built_again():
    done = rewrite(
        ir.from_proto(residual("y = LayerNormalization(h, g)")),
        resolve("ort-cuda"),
        lambda kind, anchor, output: "rolled-back" if output == "y" else None,
    )
    assert [n.op_type for n in done.model.graph] == ["Add", "LayerNormalization"]


@pytest.mark.parametrize("ending", ["", SILU], ids=["alone", "silu"])
def test_a_group_norm_in_float16_is_one_operator_on_images_with_channels_last(ending):
    proto = images(ending)
    result = rewritten(proto, "ort-cuda")
    assert result.operators == {"Transpose": 2, "GroupNorm": 1}
    (node,) = nodes(result.model, "GroupNorm")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (node.domain, attributes["groups"], attributes["activation"], attributes["channels_last"]) == (
        "com.microsoft", 2, int(bool(ending)), 1,
    )  # fmt: skip
    assert [(s.kind, s.operator, s.output) for s in result.fused] == [("GroupNorm", "GroupNorm", "y")]
    for feed in feeds(proto):
        assert_close(run(proto, feed)[0], evaluator(result.model).run(None, feed)[0], 2e-2)


@pytest.mark.parametrize("case", ["float32", "odd", "one-sided"])
def test_what_the_group_norm_kernel_does_not_take_goes_the_way_of_all(case):
    if case == "float32":
        proto = images(dtype=SINGLE)
    elif case == "odd":
        proto = images(channels=6, groups=2)  # three channels a group, and it takes them in pairs
    else:
        proto = model(
            GROUP.replace("w = ", "y = "),
            {
                "e": np.array(2.0**-10, HALF), "view": np.array([0, 2, -1]), "back": np.array([0, 8, 30]),
                "gc": vector(8, 1).astype(HALF), "bc": vector(8, 1, seed=1).astype(HALF),
            },
            x="float16[2,8,30]",
        )  # fmt: skip
    result = rewritten(proto, "ort-cuda")
    assert result.operators["InstanceNormalization"] == 1
    assert_agree(proto, result.model, tolerance=1e-2 if case != "float32" else 0)


def test_a_silu_is_left_where_the_norm_is_read_by_others_too():
    proto = images(" q = Sigmoid(w) p = Mul(w, q) y = Add(p, w)")
    assert rewritten(proto, "ort-cuda").operators["Sigmoid"] == 1


def test_a_sigmoid_of_something_else_is_no_silu():
    proto = images(" ww = Neg(w) q = Sigmoid(ww) y = Mul(w, q)")
    assert rewritten(proto, "ort-cuda").operators["Sigmoid"] == 1


@pytest.mark.cuda
@pytest.mark.parametrize("proto", [images(), images(SILU), residual(LAYER), residual(RMS, SINGLE)])
def test_the_results_hold_on_the_cuda_provider(proto):
    from normfuse import Options, optimize

    report = optimize(proto, options=Options(providers=("cuda",))).report
    assert report.count("fused") == 1
    assert report.parity is not None
    assert report.parity.agrees
