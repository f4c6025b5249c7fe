"""x / (sigma + e): exact where the runtime gives the deviation, else left; and norms of length."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from small_models import assert_agree, f32, rewritten, vector
from spelled import BETA, CONSTANTS, GAMMA, layer_norm, rms_norm

BESSEL = {"bessel": f32(6 / 5)}


def outside(
    write, epsilon: float, bessel: bool = False, x: str = "float[10,6]", **parts: str
) -> onnx.ModelProto:  # type: ignore[no-untyped-def]
    """A norm whose epsilon stands beside the deviation."""
    deviation = "d" if write is layer_norm else "x"
    corrected = "w = Mul(v, bessel)" if bessel else "w = Identity(v)"
    root = f"{corrected} r0 = Sqrt(w) r = Add(r0, o) n = Div({deviation}, r)"
    return write(CONSTANTS | BESSEL | {"o": f32(epsilon)}, x, epsilon="", root=root, **parts)


@pytest.mark.parametrize("bessel", [False, True], ids=["population", "sample"])
@pytest.mark.parametrize("epsilon", [0.3, 1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize("write", [layer_norm, rms_norm], ids=["layer", "rms"])
def test_it_is_exact_on_rows_of_every_kind(write, epsilon, bessel):
    proto = outside(write, epsilon, bessel)
    result = rewritten(proto, "ort")
    assert len(result.fused) == 1
    assert result.operators["Sqrt"] == result.operators["ReduceMean"] == 0
    assert_agree(proto, result.model)
    assert not rewritten(result.model, "ort").fused


@pytest.mark.parametrize("write", [layer_norm, rms_norm], ids=["layer", "rms"])
def test_on_the_cpu_over_short_rows_where_it_is_slower_it_is_left(write):
    result = rewritten(outside(write, 0.2), "ort-cpu")
    assert not result.fused
    assert result.reasons == {"no-gain"}


@pytest.mark.parametrize("write", [layer_norm, rms_norm], ids=["layer", "rms"])
def test_on_the_cpu_over_long_rows_it_is_one_operator_and_a_factor(write):
    proto = outside(write, 0.2, x="float[3,128]", affine="y = Identity(n)")
    result = rewritten(proto, "ort-cpu")
    assert len(result.fused) == 1
    assert result.operators["ReduceMean"] == 0
    assert_agree(proto, result.model)
    assert not rewritten(result.model, "ort-cpu").fused


@pytest.mark.parametrize(("length", "kept"), [(8, True), (64, False)])
def test_a_division_by_the_length_of_short_rows_is_left_on_the_cpu(length, kept):
    body = dict.fromkeys(("square", "variance", "epsilon"), "")
    constants = {"last": np.array([-1])}
    root = LENGTHS["norm"].replace("n = Div", "y = Div")
    proto = rms_norm(constants, f"float[10,{length}]", root=root, affine="", **body)
    assert bool(rewritten(proto, "ort-cpu").fused) != kept
    assert rewritten(proto, "ort").fused


@pytest.mark.parametrize("axis", ["[1]", "[2,3]"])
def test_over_other_axes(axis):
    reductions = {"mean": f"m = ReduceMean<axes={axis}>(x)", "variance": f"v = ReduceMean<axes={axis}>(s)"}
    proto = outside(layer_norm, 0.1, x="float[2,6,4,5]", affine="y = Identity(n)", **reductions)
    assert_agree(proto, rewritten(proto, "ort").model)


def test_on_the_standard_target_a_layer_norm_has_its_deviation_and_an_rms_norm_has_not():
    layer, rms = outside(layer_norm, 0.1), outside(rms_norm, 0.1)
    for proto in (layer, rms):
        result = rewritten(proto, "onnx")
        assert result.fused or result.reasons == {"eps-outside-sqrt"}
        assert_agree(proto, result.model)
    assert not rewritten(rms, "onnx").fused


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_in_other_types_it_is_left(dtype):
    kind = np.float16 if dtype == "float16" else np.float64
    constants = {k: v.astype(kind) for k, v in CONSTANTS.items()}
    root = "r0 = Sqrt(v) r = Add(r0, o) n = Div(x, r)"
    proto = rms_norm(constants | {"o": np.array(0.25, kind)}, f"{dtype}[10,6]", epsilon="", root=root)
    result = rewritten(proto)
    assert result.reasons == {"eps-outside-sqrt"}
    assert_agree(proto, result.model)


LENGTHS = {
    "norm": "r = ReduceL2<axes=[-1]>(x) n = Div(x, r)",
    "root_of_a_sum": "s = Mul(x, x) t = ReduceSum(s, last) r = Sqrt(t) n = Div(x, r)",
    "root_of_a_sum_of_squares": "t = ReduceSumSquare<axes=[-1]>(x) r = Sqrt(t) "
    "i = Reciprocal(r) n = Mul(x, i)",
}


@pytest.mark.parametrize("text", LENGTHS)
def test_a_norm_of_length_keeps_the_nan_of_a_zero_row(text):
    body = dict.fromkeys(("square", "variance", "epsilon"), "")
    proto = rms_norm({"last": np.array([-1])}, "float[10,6]", root=LENGTHS[text], **body)
    result = rewritten(proto, "ort")
    assert [s.kind for s in result.fused] == ["L2Norm"]
    assert sum(result.operators.values()) == 1
    assert_agree(proto, result.model)


CLAMPED = {
    "norm": "r0 = ReduceL2<axes=[-1]>(x) r = Clip(r0, least) n = Div(x, r)",
    "sum_of_squares": "t = ReduceSumSquare<axes=[-1]>(x) u = Max(t, least) r = Sqrt(u) n = Div(x, r)",
    "expanded": "r0 = ReduceL2<axes=[-1]>(x) r1 = Clip(r0, least) h = Shape(x) "
    "r = Expand(r1, h) n = Div(x, r)",
}


@pytest.mark.parametrize("text", CLAMPED)
def test_a_clamped_norm_of_length_is_named_or_exact(text):
    body = dict.fromkeys(("square", "variance", "epsilon"), "")
    proto = rms_norm({"least": f32(1e-3)}, "float[10,6]", root=CLAMPED[text], **body)
    result = rewritten(proto)
    assert result.fused or result.reasons == {"no-fused-operator"}
    assert_agree(proto, result.model)


def test_a_scale_and_a_bias_go_with_the_deviation():
    proto = outside(layer_norm, 0.2)
    result = rewritten(proto, "ort")
    assert result.fused[0].kind == "LayerNorm"
    np.testing.assert_array_equal(GAMMA, vector(6))
    np.testing.assert_array_equal(BETA, vector(6, seed=1))
    assert_agree(proto, result.model)
