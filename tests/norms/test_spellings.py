"""Every spelling of one normalization ends as the same fused node, with its epsilon, scale and bias."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from small_models import assert_agree, f32, mentioned, model, operators, rewritten, vector
from spelled import BETA, EPSILON, GAMMA, WIDTH, assert_fused, fused_nodes, layer_norm, rms_norm

N = WIDTH
AXES = np.array([-1])
ROOTS = {
    "div_by_sqrt": "r = Sqrt(ve) n = Div(DEV, r)",
    "times_reciprocal_of_sqrt": "r = Sqrt(ve) i = Reciprocal(r) n = Mul(DEV, i)",
    "reciprocal_first": "r = Sqrt(ve) i = Reciprocal(r) n = Mul(i, DEV)",
    "times_one_over_sqrt": "r = Sqrt(ve) i = Div(one, r) n = Mul(DEV, i)",
    "power_minus_half": "i = Pow(ve, mhalf) n = Mul(DEV, i)",
    "div_by_power_half": "r = Pow(ve, half) n = Div(DEV, r)",
    "reciprocal_of_power_half": "r = Pow(ve, half) i = Reciprocal(r) n = Mul(DEV, i)",
    "sqrt_of_reciprocal": "i = Reciprocal(ve) r = Sqrt(i) n = Mul(DEV, r)",
    "sqrt_of_one_over": "i = Div(one, ve) r = Sqrt(i) n = Mul(DEV, r)",
    "power_half_of_reciprocal": "i = Reciprocal(ve) r = Pow(i, half) n = Mul(DEV, r)",
    "reciprocal_written_as_power": "r = Sqrt(ve) i = Pow(r, mone) n = Mul(DEV, i)",
}
ROOT_CONSTANTS = {"one": f32(1.0), "half": f32(0.5), "mhalf": f32(-0.5), "mone": f32(-1.0)}
EXPONENTS = {
    "float": f32(2.0),
    "int64": np.array(2),
    "int32": np.array(2, np.int32),
    "double": np.array(2.0),
    "vector_of_one": np.array([2.0], np.float32),
    "rank_2": np.array([[2.0]], np.float32),
}
BOTH = pytest.mark.parametrize("write", [layer_norm, rms_norm], ids=["layer", "rms"])


def kind_of(write: object) -> tuple[str, str]:
    return ("LayerNorm", "d") if write is layer_norm else ("RMSNorm", "x")


@BOTH
@pytest.mark.parametrize("root", ROOTS)
def test_every_reciprocal_root_is_the_same(write, root):
    kind, deviation = kind_of(write)
    proto = write(ROOT_CONSTANTS, root=ROOTS[root].replace("DEV", deviation))
    assert_fused(proto, kind, scale=GAMMA)


@BOTH
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_square_is_a_power_of_two_of_any_type(write, exponent):
    kind, deviation = kind_of(write)
    proto = write({"p": EXPONENTS[exponent]}, square=f"s = Pow({deviation}, p)")
    assert_fused(proto, kind, scale=GAMMA)


@pytest.mark.parametrize("orders", list(itertools.product((False, True), repeat=4)))
def test_operands_of_commutative_operators_in_any_order(orders):
    swap = {True: lambda a, b: f"({b}, {a})", False: lambda a, b: f"({a}, {b})"}
    eps, rsqrt, gamma, beta = (swap[o] for o in orders)
    proto = layer_norm(
        epsilon="ve = Add" + eps("v", "e"),
        root="r = Sqrt(ve) i = Reciprocal(r) n = Mul" + rsqrt("d", "i"),
        affine="k = Mul" + gamma("n", "g") + " y = Add" + beta("k", "b"),
    )
    assert_fused(proto, "LayerNorm", scale=GAMMA, bias=BETA)


VARIANCES = {
    "mean_of_squares_minus_square_of_mean": (
        "q = Mul(x, x) w = ReduceMean<axes=[-1]>(q) mm = Mul(m, m) v = Sub(w, mm)",
        1.0,
    ),
    "clamped_by_max": (
        "q = Mul(x, x) w = ReduceMean<axes=[-1]>(q) mm = Mul(m, m) u = Sub(w, mm) v = Max(zero, u)",
        1.0,
    ),
    "clamped_by_relu": (
        "q = Mul(x, x) w = ReduceMean<axes=[-1]>(q) mm = Mul(m, m) u = Sub(w, mm) v = Relu(u)",
        1.0,
    ),
    "clamped_by_clip": (
        "q = Mul(x, x) w = ReduceMean<axes=[-1]>(q) mm = Mul(m, m) u = Sub(w, mm) v = Clip(u, zero)",
        1.0,
    ),
    "sum_over_n": ("s = Mul(d, d) t = ReduceSum(s, last) v = Div(t, n6)", 1.0),
    "sum_times_one_over_n": ("s = Mul(d, d) t = ReduceSum(s, last) v = Mul(t, n1_6)", 1.0),
    "sum_of_squares": ("t = ReduceSumSquare<axes=[-1]>(d) v = Div(t, n6)", 1.0),
    "norm_squared": ("t = ReduceL2<axes=[-1]>(d) s = Mul(t, t) v = Div(s, n6)", 1.0),
    "bessel_by_division": ("s = Mul(d, d) t = ReduceSum(s, last) v = Div(t, n5)", 6 / 5),
    "bessel_by_factor": ("s = Mul(d, d) u = ReduceMean<axes=[-1]>(s) v = Mul(u, n6_5)", 6 / 5),
    "bessel_times_n_over_n_minus_1": (
        "s = Mul(d, d) u = ReduceMean<axes=[-1]>(s) w = Mul(u, n6) v = Div(w, n5)",
        6 / 5,
    ),
    "sum_itself": ("s = Mul(d, d) v = ReduceSum(s, last)", 6.0),
    "mean_without_keepdims_and_unsqueeze": (
        "s = Mul(d, d) t = ReduceMean<axes=[-1], keepdims=0>(s) v = Unsqueeze(t, last)",
        1.0,
    ),
    "mean_without_keepdims_and_reshape": (
        "s = Mul(d, d) t = ReduceMean<axes=[-1], keepdims=0>(s) v = Reshape(t, column)",
        1.0,
    ),
    "expanded_to_the_input": ("s = Mul(d, d) t = ReduceMean<axes=[-1]>(s) v = Expand(t, full)", 1.0),
}
VARIANCE_CONSTANTS = {
    "zero": f32(0.0),
    "n6": f32(6.0),
    "n1_6": f32(1 / 6),
    "n5": f32(5.0),
    "n6_5": f32(6 / 5),
    "last": AXES,
    "column": np.array([4, 1]),
    "full": np.array([4, 6]),
}


@pytest.mark.parametrize("variance", VARIANCES)
def test_every_variance_is_the_same(variance):
    text, factor = VARIANCES[variance]
    proto = layer_norm(VARIANCE_CONSTANTS, square="", variance=text)
    assert_fused(proto, "LayerNorm", epsilon=EPSILON / factor, scale=GAMMA / np.sqrt(factor), bias=BETA)


@pytest.mark.parametrize("variance", [k for k, (text, _) in VARIANCES.items() if "m)" not in text])
def test_every_mean_of_squares_is_the_same(variance):
    text, factor = VARIANCES[variance]
    proto = rms_norm(VARIANCE_CONSTANTS, square="", variance=text.replace("(d", "(x").replace(", d", ", x"))
    assert_fused(proto, "RMSNorm", epsilon=EPSILON / factor, scale=GAMMA / np.sqrt(factor))


MEANS = {
    "sum_over_n": "t = ReduceSum(x, last) m = Div(t, n6)",
    "sum_times_one_over_n": "t = ReduceSum(x, last) m = Mul(n1_6, t)",
    "sum_over_shape_and_gather": "t = ReduceSum(x, last) h = Shape(x) i = Gather(h, one) c = "
    "Cast<to=1>(i) m = Div(t, c)",
    "sum_over_shape_and_slice": "t = ReduceSum(x, last) h = Shape<start=1>(x) c = Cast<to=1>(h) m "
    "= Div(t, c)",
    "sum_over_product_of_sizes": "t = ReduceSum(x, last) h = Shape(x) i = Gather(h, last) p = "
    "ReduceProd<keepdims=0>(i) c = Cast<to=1>(p) m = Div(t, c)",
    "without_keepdims_and_unsqueeze": "t = ReduceMean<axes=[-1], keepdims=0>(x) m = Unsqueeze(t, last)",
    "without_keepdims_and_reshape": "t = ReduceMean<axes=[1], keepdims=0>(x) m = Reshape(t, column)",
    "without_keepdims_reshaped_and_expanded": "t = ReduceMean<axes=[1], keepdims=0>(x) u = "
    "Reshape(t, column) m = Expand(u, full)",
}


@pytest.mark.parametrize("mean", MEANS)
def test_every_mean_is_the_same(mean):
    constants = VARIANCE_CONSTANTS | {"one": np.array(1)}
    assert_fused(layer_norm(constants, mean=MEANS[mean]), "LayerNorm", scale=GAMMA, bias=BETA)


CENTRES = {
    "added_negative": ("m0 = Neg(m) d = Add(x, m0)", 1),
    "negated_difference": ("d0 = Sub(m, x) d = Neg(d0)", 1),
    "mean_minus_x": ("d = Sub(m, x)", -1),
    "scaled_twice": ("d0 = Sub(x, m) d1 = Mul(d0, two) d = Div(d1, two)", 1),
}


@pytest.mark.parametrize("centre", CENTRES)
def test_every_deviation_is_the_same_up_to_its_sign(centre):
    text, sign = CENTRES[centre]
    assert_fused(layer_norm({"two": f32(2.0)}, centre=text), "LayerNorm", scale=sign * GAMMA, bias=BETA)


def test_mean_and_deviation_may_be_computed_twice():
    proto = layer_norm(root="m2 = ReduceMean<axes=[1]>(x) d2 = Sub(x, m2) r = Sqrt(ve) n = Div(d2, r)")
    assert_fused(proto, "LayerNorm", scale=GAMMA, bias=BETA)


AFFINES = {
    "none": ("y = Identity(n)", 1.0, None),
    "scale": ("y = Mul(g, n)", GAMMA, None),
    "bias": ("y = Add(n, b)", 1.0, BETA),
    "bias_before_scale": ("k = Add(n, b) y = Mul(k, g)", GAMMA, GAMMA * BETA),
    "one_plus_scale": ("w = Add(g, one) y = Mul(n, w)", 1 + GAMMA, None),
    "leading_ones": ("k = Mul(n, g2) y = Add(k, b)", GAMMA, BETA),
    "scalar": ("y = Mul(n, c)", 1.75, None),
    "vector_of_one": ("y = Mul(n, c1)", 1.75, None),
    "division": ("y = Div(n, g)", 1 / GAMMA, None),
    "subtracted_bias": ("y = Sub(n, b)", 1.0, -BETA),
    "subtracted_from_bias": ("y = Sub(b, n)", -1.0, BETA),
    "two_scales": ("k = Mul(n, g) y = Mul(k, c)", 1.75 * GAMMA, None),
    "two_biases": ("k = Add(n, b) y = Add(k, c)", 1.0, BETA + 1.75),
    "negated": ("k = Mul(n, g) y = Neg(k)", -GAMMA, None),
}
AFFINE_CONSTANTS = {"one": f32(1.0), "g2": GAMMA[None], "c": f32(1.75), "c1": np.array([1.75], np.float32)}


@pytest.mark.parametrize("affine", AFFINES)
def test_every_constant_affine_is_absorbed(affine):
    text, scale, bias = AFFINES[affine]
    assert_fused(layer_norm(AFFINE_CONSTANTS, affine=text), "LayerNorm", scale=scale, bias=bias)


@pytest.mark.parametrize("affine", [k for k, (_, _, bias) in AFFINES.items() if bias is None])
def test_every_constant_scale_of_an_rms_norm_is_absorbed(affine):
    text, scale, _ = AFFINES[affine]
    assert_fused(rms_norm(AFFINE_CONSTANTS, affine=text), "RMSNorm", scale=scale)


def test_a_bias_behind_an_rms_norm_stays_an_add_and_is_found_once():
    assert_fused(rms_norm(affine="k = Mul(n, g) y = Add(k, b)"), "RMSNorm", scale=GAMMA, left=("Add",))


TANGLED = {
    "x_times_k_plus_shift": "r = Sqrt(ve) i = Reciprocal(r) k = Mul(i, g) xk = Mul(x, k) mk = "
    "Mul(m, k) s2 = Sub(b, mk) y = Add(xk, s2)",
    "x_times_k_minus_mean_times_k": "r = Sqrt(ve) i = Reciprocal(r) k = Mul(i, g) xk = Mul(x, k) "
    "mk = Mul(m, k) u = Sub(xk, mk) y = Add(u, b)",
    "scale_over_deviation": "r = Sqrt(ve) k = Div(g, r) u = Mul(d, k) y = Add(u, b)",
    "scale_on_the_deviation": "r = Sqrt(ve) k = Mul(d, g) u = Div(k, r) y = Add(u, b)",
}


@pytest.mark.parametrize("text", TANGLED)
def test_scale_and_bias_may_be_woven_into_the_norm(text):
    assert_fused(layer_norm(root="", affine=TANGLED[text]), "LayerNorm", scale=GAMMA, bias=BETA)


@BOTH
@pytest.mark.parametrize("opset", [9, 11, 13, 17, 18, 20, 21, 23, 24])
def test_every_opset(write, opset):
    kind, _ = kind_of(write)
    assert_fused(write(opset=opset), kind, scale=GAMMA)


AXES_FORMS = {
    "initializer": ("", {"axes": np.array([-1])}),
    "from_the_left": ("", {"axes": np.array([1])}),
    "constant_tensor": ("axes = Constant<value = int64[1] {-1}>()", {}),
    "constant_ints": ("axes = Constant<value_ints=[-1]>()", {}),
    "unsqueezed_int": ("i = Constant<value_int=-1>() axes = Unsqueeze(i, zero)", {"zero": np.array([0])}),
    "concatenated": ("i = Constant<value_ints=[-1]>() axes = Concat<axis=0>(i)", {}),
    "cast": ("i = Constant<value_floats=[-1.0]>() axes = Cast<to=7>(i)", {}),
    "range": ("axes = Range(one, two, one)", {"one": np.array(1), "two": np.array(2)}),
}


@pytest.mark.parametrize("form", AXES_FORMS)
def test_axes_may_be_any_constant(form):
    nodes, constants = AXES_FORMS[form]
    proto = layer_norm(
        constants, opset=18, mean=nodes + " m = ReduceMean(x, axes)", variance="v = ReduceMean(s, axes)"
    )
    assert_fused(proto, "LayerNorm", scale=GAMMA, bias=BETA)


@pytest.mark.parametrize(
    ("mean", "variance", "axes"),
    [
        ("[2,1]", "[-2,-1]", (-2, -1)),
        ("[1,-1]", "[-1,1]", (-2, -1)),
        ("[0,1,2]", "[-1,-2,-3]", (-3, -2, -1)),
    ],
)
def test_axes_are_compared_as_sets(mean, variance, axes):
    proto = layer_norm(
        {"g": vector(5, 6), "b": vector(5, 6, seed=1)},
        "float[2,5,6]",
        mean=f"m = ReduceMean<axes={mean}>(x)",
        variance=f"v = ReduceMean<axes={variance}>(s)",
    )
    assert_fused(proto, "LayerNorm", axes=axes, scale=vector(5, 6))


@pytest.mark.parametrize(
    "gamma", [vector(5, 6), vector(6), vector(5, 1), f32(1.5), vector(1, 5, 6)], ids=np.shape
)
def test_a_smaller_scale_is_expanded_to_the_normalized_axes(gamma):
    proto = layer_norm(
        {"g": gamma},
        "float[2,5,6]",
        affine="y = Mul(n, g)",
        mean="m = ReduceMean<axes=[1,2]>(x)",
        variance="v = ReduceMean<axes=[1,2]>(s)",
    )
    result = assert_fused(proto, "LayerNorm", axes=(-2, -1), scale=gamma.reshape(gamma.shape[-2:]))
    (node,) = fused_nodes(result.model)
    shapes = {t.name: tuple(t.dims) for t in result.model.graph.initializer}
    assert shapes[node.input[1]] == (5, 6)


def test_reductions_without_axes_run_over_the_whole_tensor():
    proto = layer_norm(mean="m = ReduceMean(x)", variance="v = ReduceMean(s)")
    assert_fused(proto, "LayerNorm", axes=(-2, -1), scale=GAMMA)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-5, 1e-3, 0.5])
@BOTH
def test_epsilon_is_carried_exactly(write, epsilon):
    kind, _ = kind_of(write)
    assert_fused(write({"e": f32(epsilon)}), kind, epsilon=epsilon)


@BOTH
def test_a_norm_without_epsilon_keeps_its_nans(write):
    _, deviation = kind_of(write)
    proto = write(epsilon="", root=f"r = Sqrt(v) n = Div({deviation}, r)")
    result = rewritten(proto)
    assert len(result.fused) == 1
    assert np.float32(result.fused[0].epsilon) == 0
    assert_agree(proto, result.model)


def test_a_vector_is_normalized_by_connectivity_not_by_rank():
    for keepdims in ("", ", keepdims=0"):
        proto = layer_norm(
            x="float[6]",
            mean=f"m = ReduceMean<axes=[0]{keepdims}>(x)",
            variance=f"v = ReduceMean<axes=[-1]{keepdims}>(s)",
        )
        assert_fused(proto, "LayerNorm", scale=GAMMA, bias=BETA)


def test_dynamic_dimensions_that_are_not_normalized():
    proto = layer_norm(x="float[B,S,6]")
    for sizes in ({"B": 1, "S": 1}, {"B": 2, "S": 7}, {"B": 0, "S": 3}):
        assert_fused(proto, "LayerNorm", scale=GAMMA, bias=BETA, sizes=sizes)


def test_two_norms_may_share_their_statistics():
    proto = layer_norm(
        {"h": vector(6, seed=5)},
        affine="k = Mul(n, g) y = Add(k, b) l = Mul(n, h) z = Add(l, b)",
        outputs="float[4,6] y, float[4,6] z",
    )
    result = rewritten(proto)
    assert result.operators == {"LayerNormalization": 2}
    assert_agree(proto, result.model)


HALF_FINISHED = {
    "rms_of_the_deviation": "m = ReduceMean(x, last) d = Sub(x, m) k = RMSNormalization<axis=-1, "
    "epsilon=0.001>(d, g) y = Add(k, b)",
    "layer_norm_and_scale": "n = LayerNormalization<axis=-1, epsilon=0.001>(x, one) k = Mul(n, g) "
    "y = Add(k, b)",
    "layer_norm_and_bias": "n = LayerNormalization<axis=-1, epsilon=0.001>(x, g) y = Add(n, b)",
    "layer_norm_of_the_deviation": "m = ReduceMean(x, last) d = Sub(x, m) y = "
    "LayerNormalization<axis=-1, epsilon=0.001>(d, g, b)",
}


@pytest.mark.parametrize("text", HALF_FINISHED)
def test_a_half_finished_fusion_is_finished(text):
    constants = {"g": GAMMA, "b": BETA, "last": AXES, "one": np.ones(6, np.float32)}
    body = HALF_FINISHED[text]
    assert_fused(
        model(body, mentioned(body, constants), opset=23, x="float[4,6]"), "LayerNorm", scale=GAMMA, bias=BETA
    )


def test_what_is_fused_already_is_left_alone():
    for body in (
        "y = LayerNormalization<axis=-1, epsilon=0.001>(x, g)",
        "y = RMSNormalization<axis=-1, epsilon=0.001>(x, g)",
        "n = RMSNormalization<axis=-1, epsilon=0.001>(x, g) y = Add(n, b)",
    ):
        constants = {"g": GAMMA} | ({"b": BETA} if "b)" in body else {})
        proto = model(body, constants, opset=23, x="float[4,6]")
        result = rewritten(proto)
        assert not result.sites
        assert result.operators == operators(proto)


@pytest.mark.parametrize("square", ["q = Mul(d, d) s = Abs(q)", "q = Pow(d, p) s = Abs(q)"])
def test_the_absolute_value_of_a_square_is_the_square(square):
    assert_fused(layer_norm({"p": f32(2.0)}, square=square), "LayerNorm", scale=GAMMA, bias=BETA)


def test_what_is_a_square_in_one_place_is_none_in_another():
    body = "q = Mul(x, x) " + " ".join(
        f"a{k} = Abs({v}) b{k} = Mul({v}, a{k}) m{k} = ReduceMean<axes=[-1]>(b{k}) "
        f"n{k} = ReduceL2<axes=[-1]>({v}) d{k} = Div(m{k}, n{k}) y{k} = Mul({v}, d{k})"
        for k, v in enumerate("qx")
    )
    proto = model(body, x="float[4,6]", outputs="float[4,6] y0, float[4,6] y1")
    assert_agree(proto, rewritten(proto).model)
