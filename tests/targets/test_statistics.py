"""Norms over inner axes on the CPU: statistics as matrix products, where that beats two Transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from small_models import assert_agree, model, rewritten, vector

from normfuse import optimize
from normfuse.pipeline.rewrite import rewrite
from normfuse.targets import resolve

LAYER = (
    "m = ReduceMean<axes=AXES>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=AXES>(s) ve = Add(v, e) "
    "r = Sqrt(ve) n = Div(d, r) k = Mul(n, g) y = Add(k, b)"
)
RMS = "s = Mul(x, x) v = ReduceMean<axes=AXES>(s) ve = Add(v, e) r = Sqrt(ve) n = Div(x, r) y = Mul(n, g)"
BESIDE = LAYER.replace("ve = Add(v, e) r = Sqrt(ve)", "q = Sqrt(v) r = Add(q, e)")
L2 = "s = Mul(x, x) v = ReduceSum<axes=AXES>(s) r = Sqrt(v) y = Div(x, r)"
BARE = RMS.replace("n = Div(x, r) y = Mul(n, g)", "y = Div(x, r)")


def inner(
    text: str, shape: str = "2,6,12,12", axes: str = "[1]", dtype: Any = np.float32, opset: int = 12
) -> onnx.ModelProto:
    """A norm over inner axes of images."""
    sizes = [int(n) if k and str(k) in axes else 1 for k, n in enumerate(shape.split(","))]
    sizes = sizes[1:]
    body = text.replace("AXES", axes)
    constants = {"e": np.array(2.0**-10, dtype)}
    if "g)" in body:
        constants["g"] = vector(*sizes).astype(dtype)
    if "b)" in body:
        constants["b"] = vector(*sizes, seed=1).astype(dtype)
    kind = {np.float32: "float", np.float64: "double", np.float16: "float16"}[dtype]
    return model(body, constants, x=f"{kind}[{shape}]", opset=opset)


def lowering(proto: onnx.ModelProto, plan: dict[str, str] | None = None, target: str = "ort-cpu"):
    done = rewrite(ir.from_proto(proto), resolve(target), lambda *_: None, plan)
    assert_agree(proto, ir.to_proto(done.model), sizes={"N": 2, "H": 12, "W": 13})
    return [site.lowering for site in done.sites]


@pytest.mark.parametrize("text", [LAYER, RMS, BESIDE, BARE], ids=["layer", "rms", "beside", "bare"])
@pytest.mark.parametrize("shape", ["2,6,12,12", "2,6,200", "N,6,H,W", "3,6,12,4,3"])
def test_over_the_channels_of_images_no_transpose_is_made(text, shape):
    assert lowering(inner(text, shape)) == ["matmul-statistics"]
    assert rewritten(inner(text, shape)).operators["Transpose"] == 0


@pytest.mark.parametrize("where", ["in front", "behind"])
def test_beside_a_convolution_the_transposes_cost_nothing(where):
    norm = LAYER.replace("AXES", "[1]")
    kernel = np.random.default_rng(0).normal(size=(6, 6, 1, 1)).astype(np.float32)
    if where == "in front":
        body, sizes = "c = Conv(x, w) " + norm.replace("(x", "(c"), {"w": kernel}
    else:
        body, sizes = norm.replace("y = Add", "a = Add") + " y = Conv(a, w)", {"w": kernel}
    constants = {"e": np.float32(1e-3), "g": vector(6, 1, 1), "b": vector(6, 1, 1, seed=1), **sizes}
    assert "layer-norm" in lowering(model(body, constants, x="float[2,6,12,12]", opset=17))


def test_several_inner_axes_are_one():
    assert lowering(inner(LAYER, "2,3,4,150", "[1, 2]")) == ["matmul-statistics"]


def test_in_float64_no_digit_is_lost():
    assert lowering(inner(LAYER, dtype=np.float64)) == ["matmul-statistics"]


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "target"),
    [
        (LAYER, "2,6,5,5", np.float32, "ort-cpu"),  # too little behind the axes
        (LAYER, "2,6,12,12", np.float16, "ort-cpu"),  # the products would be cast
        (LAYER, "2,6,12,12", np.float32, "ort"),
        (LAYER, "2,6,12,12", np.float32, "ort-cuda"),
    ],
)
def test_elsewhere_the_norm_stands_between_transposes(text, shape, dtype, target):
    assert rewritten(inner(text, shape, dtype=dtype), target).operators["Transpose"] == 2


def test_an_l2_norm_in_few_operators_is_left_and_may_be_tuned():
    proto = inner(L2)
    assert lowering(proto) == [None]
    assert lowering(proto, {"y": "matmul-statistics"}) == ["matmul-statistics"]


def test_a_zero_column_stays_what_it_was_without_an_epsilon():
    proto = inner(L2)
    done = rewrite(ir.from_proto(proto), resolve("ort-cpu"), lambda *_: None, {"y": "matmul-statistics"})
    assert_agree(proto, ir.to_proto(done.model))  # its inputs hold zero rows: 0 / 0 is NaN on both sides


@pytest.mark.parametrize("text", [LAYER, RMS, BESIDE, BARE], ids=["layer", "rms", "beside", "bare"])
@pytest.mark.parametrize("shape", ["2,6,12,12", "1,700,12,12", "N,6,H,W"])
def test_a_second_run_changes_nothing(text, shape):
    once = rewritten(inner(text, shape)).model
    assert rewritten(once).model == once


@pytest.mark.parametrize("text", [LAYER, RMS], ids=["layer", "rms"])
@pytest.mark.parametrize("channels", [96, 640])
def test_it_holds_at_large_offsets_and_on_constant_columns(text, channels):
    report = optimize(inner(text, f"1,{channels},12,12")).report
    assert [(s.lowering, s.status) for s in report.sites] == [("matmul-statistics", "fused")]
    assert report.parity is not None
    assert report.parity.agrees


@pytest.mark.parametrize("sizes", [{"N": 2, "H": 0, "W": 13}, {"N": 2, "H": 12, "W": 0}])
def test_an_empty_image_stays_empty(sizes):
    proto = inner(LAYER, "N,6,H,W", opset=17)
    assert_agree(proto, rewritten(proto).model, sizes=sizes)
