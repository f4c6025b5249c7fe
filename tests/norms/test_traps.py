"""Traps of the catalogue: each is left with its own reason, or fused as far as it is a norm, and agrees."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from small_models import Result, assert_agree, f32, model, rewritten, vector
from spelled import BETA, EPSILON, GAMMA, assert_fused, fused_nodes, layer_norm, left_alone, rms_norm

DROPPED = "ReduceMean<axes=[-1], keepdims=0>"


LEFT: dict[str, tuple[onnx.ModelProto, str]] = {
    "keepdims_0_in_both_reductions": (
        layer_norm(x="float[6,6]", mean=f"m = {DROPPED}(x)", variance=f"v = {DROPPED}(s)"),
        "keepdims=0",
    ),
    "keepdims_0_in_the_variance": (layer_norm(x="float[6,6]", variance=f"v = {DROPPED}(s)"), "keepdims=0"),
    "keepdims_0_in_an_rms_norm": (rms_norm(x="float[6,6]", variance=f"v = {DROPPED}(s)"), "keepdims=0"),
    "exponent_3": (layer_norm({"p": f32(3.0)}, square="s = Pow(d, p)"), "exponent!=2"),
    "exponent_2.5": (layer_norm({"p": f32(2.5)}, square="s = Pow(d, p)"), "exponent!=2"),
    "exponent_near_2": (layer_norm({"p": f32(2.0000002)}, square="s = Pow(d, p)"), "exponent!=2"),
    "exponent_vector_with_one_3": (
        layer_norm({"p": f32(2, 2, 2, 2, 2, 3)}, square="s = Pow(d, p)"),
        "exponent!=2",
    ),
    "exponent_4_of_an_rms_norm": (rms_norm({"p": f32(4.0)}, square="s = Pow(x, p)"), "exponent!=2"),
    "exponent_at_run_time": (
        layer_norm(square="s = Pow(d, p)", inputs={"p": "float"}),
        "exponent-not-constant",
    ),
    "exponent_of_an_rms_norm_at_run_time": (
        rms_norm(square="s = Pow(x, p)", inputs={"p": "float"}),
        "exponent-not-constant",
    ),
    "epsilon_at_run_time": (
        layer_norm(epsilon="ve = Add(v, z)", inputs={"z": "float"}),
        "epsilon-not-constant",
    ),
    "epsilon_of_an_rms_norm_at_run_time": (
        rms_norm(epsilon="ve = Add(v, z)", inputs={"z": "float"}),
        "epsilon-not-constant",
    ),
    "epsilon_vector": (layer_norm({"e": np.linspace(0.1, 1, 6).astype(np.float32)}), "epsilon-not-uniform"),
    "epsilon_vector_of_an_rms_norm": (
        rms_norm({"e": np.linspace(0.1, 1, 6).astype(np.float32)}),
        "epsilon-not-uniform",
    ),
    "epsilon_of_each_row": (
        rms_norm({"e": np.linspace(0.1, 1, 4).astype(np.float32)[:, None]}),
        "epsilon-not-uniform",
    ),
    "epsilon_negative": (rms_norm({"e": f32(-1e-3)}), "epsilon-negative"),
    "statistics_of_another_tensor": (
        layer_norm(root="r = Sqrt(ve) n = Div(z, r)", inputs={"z": "float[4,6]"}),
        "statistics-of-another-tensor",
    ),
    "rms_of_another_tensor": (
        rms_norm(root="r = Sqrt(ve) n = Div(z, r)", inputs={"z": "float[4,6]"}),
        "statistics-of-another-tensor",
    ),
    "numerator_not_centred": (layer_norm(root="r = Sqrt(ve) n = Div(x, r)"), "numerator-not-centred"),
    "statistic_not_centred": (layer_norm(square="s = Mul(x, x)"), "numerator-not-centred"),
    "divisor_at_run_time": (
        rms_norm(
            variance="t = ReduceSumSquare<axes=[-1]>(x) v = Div(t, z)", square="", inputs={"z": "float"}
        ),
        "divisor!=N",
    ),
    "constant_divisor_of_a_dynamic_sum": (
        rms_norm(
            {"n": f32(5.0)},
            "float[4,N]",
            variance="t = ReduceSumSquare<axes=[-1]>(x) v = Div(t, n)",
            square="",
            affine="y = Identity(n0)",
            root="r = Sqrt(ve) n0 = Div(x, r)",
        ),
        "divisor!=N",
    ),
    "one_element_in_the_normalized_axis": (
        layer_norm(x="float[4,1]", affine="y = Identity(n)"),
        "normalized-size-1",
    ),
    "one_element_in_the_axis_of_an_rms_norm": (
        rms_norm(x="float[4,1]", affine="y = Identity(n)"),
        "normalized-size-1",
    ),
    "size_of_the_normalized_axis_unknown": (
        rms_norm(x="float[4,N]", affine="y = Identity(n)"),
        "unknown-normalized-size",
    ),
}


@pytest.mark.parametrize("trap", LEFT)
def test_left_with_its_own_reason(trap):
    proto, reason = LEFT[trap]
    assert left_alone(proto).reasons == {reason}


def test_epsilon_outside_the_root_is_exact_or_left():
    for write, deviation in ((layer_norm, "d"), (rms_norm, "x")):
        for dtype in ("float", "float16"):
            scalar = np.array(0.25, np.float16 if dtype == "float16" else np.float32)
            proto = write(
                {"o": scalar},
                f"{dtype}[10,6]",
                epsilon="",
                affine="y = Identity(n)",
                root=f"r0 = Sqrt(v) r = Add(r0, o) n = Div({deviation}, r)",
            )
            result = rewritten(proto)
            assert result.fused or result.reasons <= {"eps-outside-sqrt", "no-gain"}
            assert_agree(proto, result.model)


def test_an_overflow_guard_is_no_rms_norm():
    proto = rms_norm(
        square="a = Abs(x) t = ReduceMax<axes=[-1]>(a) w = Div(x, t) s = Mul(w, w)",
        root="r0 = Sqrt(ve) r = Mul(r0, t) n = Div(x, r)",
    )
    left_alone(proto)


OUTSIDE: dict[str, tuple[onnx.ModelProto, str, tuple[int, ...], str, tuple[str, ...]]] = {
    "scale_that_enlarges_the_axis": (
        layer_norm(
            {"g": vector(4), "b": vector(4)},
            "float[2,6,1]",
            outputs="float[2,6,4] y",
            mean="m = ReduceMean<axes=[1]>(x)",
            variance="v = ReduceMean<axes=[1]>(s)",
        ),
        "LayerNorm",
        (-2, -1),
        "affine-expands-shape",
        ("Mul", "Add"),
    ),
    "scale_that_adds_a_dimension": (
        layer_norm({"g": vector(3, 1, 6)}, outputs="float[3,4,6] y"),
        "LayerNorm",
        (-1,),
        "affine-expands-shape",
        ("Mul", "Add"),
    ),
    "scale_of_each_token": (
        layer_norm({"g": vector(4, 1)}, "float[2,4,6]"),
        "LayerNorm",
        (-1,),
        "affine-not-normalized-axes",
        ("Mul", "Add"),
    ),
    "scale_of_tokens_and_channels": (
        layer_norm({"g": vector(4, 6)}, "float[2,4,6]"),
        "LayerNorm",
        (-1,),
        "affine-not-normalized-axes",
        ("Mul", "Add"),
    ),
    "scale_of_groups": (
        rms_norm({"g": vector(4, 6)}, "float[2,4,6]"),
        "RMSNorm",
        (-1,),
        "affine-not-normalized-axes",
        ("Mul",),
    ),
    "scale_at_run_time": (
        layer_norm(affine="y = Mul(n, w)", inputs={"w": "float[6]"}),
        "LayerNorm",
        (-1,),
        "affine-not-constant",
        ("Mul",),
    ),
    "modulation_by_a_condition": (
        layer_norm(
            {"one": f32(1.0)},
            "float[2,4,6]",
            affine="w1 = Add(w, one) k = Mul(n, w1) y = Add(k, t)",
            inputs={"w": "float[2,1,6]", "t": "float[2,1,6]"},
        ),
        "LayerNorm",
        (-1,),
        "affine-not-constant",
        ("Mul", "Add"),
    ),
    "scale_of_another_symbol": (
        layer_norm(
            x="float[B,6]", affine="y = Mul(n, w)", inputs={"w": "float[K,1]"}, outputs="float[C,6] y"
        ),
        "LayerNorm",
        (-1,),
        "affine-expands-shape",
        ("Mul",),
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_the_core_is_fused_and_its_affine_stays_outside(case):
    proto, kind, axes, outside, left = OUTSIDE[case]
    result = rewritten(proto)
    assert [(s.kind, s.axes) for s in result.fused] == [(kind, axes)]
    if case != "scale_of_another_symbol":  # that may be named as a shape or as a run-time value
        assert result.fused[0].outside == outside
    (node,) = fused_nodes(result.model)
    assert set(result.operators) - {node.op_type} == set(left)
    assert_agree(proto, result.model, sizes={"K": 1})
    assert not rewritten(result.model).fused


def test_a_scale_of_the_last_axis_of_a_norm_over_channels_stays_outside():
    proto = layer_norm(
        {"g": vector(6), "b": vector(6)},
        "float[2,6,4,6]",
        mean="m = ReduceMean<axes=[1]>(x)",
        variance="v = ReduceMean<axes=[1]>(s)",
    )
    result = rewritten(proto)
    assert [s.outside for s in result.fused] == ["affine-not-normalized-axes"]
    assert result.operators["Mul"] == result.operators["Add"] == 1
    assert_agree(proto, result.model)


def test_a_constant_scale_cannot_prove_the_size_of_a_dynamic_axis():
    proto = layer_norm(x="float[4,N]", outputs="float[4,M] y")
    result = left_alone_sizes(proto, {"N": 6})
    assert result.reasons & {"unknown-normalized-size", "unknown-shape"}
    left_alone_sizes(proto, {"N": 1})


def left_alone_sizes(proto: onnx.ModelProto, sizes: dict[str, int]) -> Result:
    """left_alone at other sizes of the dynamic dimensions."""
    result = rewritten(proto)
    assert not result.fused
    assert_agree(proto, result.model, sizes=sizes)
    return result


def test_mean_and_variance_over_different_axes_are_no_layer_norm():
    proto = layer_norm(x="float[2,6,6]", mean="m = ReduceMean<axes=[1]>(x)")
    result = rewritten(proto)
    assert "LayerNormalization" not in result.operators
    assert result.operators["ReduceMean"] >= 1
    assert_agree(proto, result.model)


def test_axes_that_do_nothing_are_no_norm():
    proto = layer_norm(
        {"none": np.array([], np.int64)},
        opset=18,
        mean="m = ReduceMean<noop_with_empty_axes=1>(x, none)",
        variance="v = ReduceMean<noop_with_empty_axes=1>(s, none)",
    )
    left_alone(proto)


def test_an_empty_list_of_axes_means_all_of_them():
    proto = layer_norm(
        {"none": np.array([], np.int64)},
        opset=18,
        mean="m = ReduceMean(x, none)",
        variance="v = ReduceMean(s, none)",
    )
    assert_fused(proto, "LayerNorm", axes=(-2, -1), scale=GAMMA)


@pytest.mark.parametrize("almost", [0.999995, 1.000001, 0.5])
def test_a_mean_that_is_not_quite_subtracted_is_no_centring(almost):
    proto = layer_norm({"a": f32(almost)}, centre="ma = Mul(m, a) d = Sub(x, ma)")
    result = rewritten(proto)
    assert "LayerNormalization" not in result.operators
    assert_agree(proto, result.model)


def test_a_sum_divided_by_another_number_is_no_mean():
    proto = layer_norm(
        {"last": np.array([-1]), "seven": f32(7.0)}, mean="t = ReduceSum(x, last) m = Div(t, seven)"
    )
    result = rewritten(proto)
    assert "LayerNormalization" not in result.operators
    assert_agree(proto, result.model)


@pytest.mark.parametrize("type_", [2, 3, 9, 10], ids=["uint8", "int8", "bool", "float16"])
def test_a_size_that_a_cast_cuts_short_is_not_the_size(type_):
    constants = {"e": f32(EPSILON), "last": np.array([-1]), "one": np.array(1)}
    proto = model(
        f"h = Shape(x) i = Gather(h, one) c = Cast<to={type_}>(i) n = Cast<to=1>(c) t = "
        f"ReduceSumSquare<axes=[-1]>(x) "
        "v = Div(t, n) ve = Add(v, e) r = Sqrt(ve) y = Div(x, r)",
        {k: v for k, v in constants.items() if k != "last"},
        x="float[2,2049]",
    )
    assert_agree(proto, rewritten(proto).model, tolerance=1e-5)


LARGER = {
    "power": "s0 = Mul(d, d) s = Pow(s0, p)",
    "square": "s = Pow(d, p2)",
    "maximum": "s0 = Mul(d, d) s = Max(s0, z)",
}


@pytest.mark.parametrize("text", LARGER)
def test_a_constant_that_enlarges_a_value_is_seen(text):
    constants = {"p": np.ones(4, np.float32), "p2": np.full(4, 2, np.float32), "z": np.zeros(4, np.float32)}
    proto = layer_norm(
        constants,
        "float[2,6,1]",
        outputs="float[2,6,4] y",
        affine="y = Identity(n)",
        square=LARGER[text],
        mean="m = ReduceMean<axes=[1]>(x)",
        variance="v = ReduceMean<axes=[1]>(s)",
    )
    assert_agree(proto, rewritten(proto).model)


def test_the_elements_of_an_enlarged_value_are_counted():
    proto = rms_norm(
        {"z": np.zeros(6, np.float32), "last": np.array([-1])},
        variance="v0 = ReduceMean<axes=[-1]>(s) w = Max(v0, z) v = ReduceSum(w, last)",
    )
    assert_agree(proto, rewritten(proto).model)


@pytest.mark.parametrize("other", ["Squeeze(x)", "Transpose(x)"])
def test_an_outer_product_is_no_square(other):
    constants = {"e": f32(200.0)}
    proto = model(
        f"m = ReduceMean<axes=[0]>(x) o = {other} c = Mul(x, o) w = ReduceMean<axes=[1]>(c) mm = Mul(m, m) "
        "v = Sub(w, mm) ve = Add(v, e) r = Sqrt(ve) d = Sub(x, m) y = Div(d, r)",
        constants,
        x="float[8,1]",
    )
    assert_agree(proto, rewritten(proto).model)


def test_one_tensor_in_two_orders_does_not_cancel():
    proto = layer_norm(
        x="float[6,6]",
        affine="t = Transpose(n) a = Add(t, z) u = Transpose(a) y = Sub(u, z)",
        inputs={"z": "float[6,6]"},
    )
    assert_agree(proto, rewritten(proto).model)


def test_an_epsilon_that_overflows_as_it_is_rescaled_is_left():
    proto = rms_norm({"k": f32(1e-22)}, square="w = Mul(x, k) s = Mul(w, w)")
    assert_agree(proto, rewritten(proto).model)


def test_a_norm_whose_mean_is_far_from_zero_is_told_from_an_rms_norm():
    assert_fused(layer_norm(), "LayerNorm", scale=GAMMA, bias=BETA)
    assert_fused(rms_norm(), "RMSNorm", scale=GAMMA)


@pytest.mark.parametrize("x", ["float[2,0]", "float[0,6]", "float[2,3,0]"])
def test_an_empty_tensor_is_left(x):
    width = int(x[:-1].rpartition(",")[2])
    parameters = {"g": np.ones(width, np.float32), "b": np.zeros(width, np.float32)}
    left_alone(layer_norm(parameters, x=x))


def test_a_norm_of_unknown_rank_is_left_and_told():
    proto = layer_norm(x="float[4,6]")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.ClearField("shape")
    result = rewritten(proto)
    assert [(site.kind, site.reason) for site in result.sites] == [("LayerNorm", "unknown-shape")]
