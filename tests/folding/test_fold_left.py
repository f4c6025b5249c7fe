"""What must not fold is left as it was, with its own reason."""

from __future__ import annotations

import numpy as np
import pytest
from folding_models import assert_folds, assert_left, built, folded, norm, normal
from onnx import TensorProto, helper

CONV = {"w": normal(6, 4, 3, 3)}
BN = norm("n", 6)
IN, OUT = "float[2,4,9,9]", "float[2,6,7,7]"


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        ("r = Relu(c) y = BN(r, *n)", "activation-between"),
        ("r = LeakyRelu(c) y = BN(r, *n)", "activation-between"),
        ("r = Sigmoid(c) y = BN(r, *n)", "activation-between"),
        ("r = Clip(c, low) y = BN(r, *n)", "activation-between"),
        ("r = PRelu(c, slope) y = BN(r, *n)", "activation-between"),
        ("r = Add(c, z) y = BN(r, *n)", "residual-between"),
        ("r = Mul(c, z) y = BN(r, *n)", "no-linear-neighbour"),
        ("r = Add(c, map) y = BN(r, *n)", "not-per-channel"),
        ("r = Mul(c, last) y = BN(r, *n)", "not-per-channel"),
        ("r = Relu(c) t = Relu(c) y = BN(r, *n) u = Identity(t)", "activation-between"),
    ],
)
def test_what_stands_between(chain: str, reason: str) -> None:
    model = built(
        f"c = Conv(x, w) {chain}",
        x=IN,
        out=OUT,
        more={"z": "float[1,6,7,7]"},
        low=np.float32(0.1),
        slope=normal(6, 1, 1),
        map=normal(1, 6, 7, 7),
        last=normal(7),
        **CONV,
        **BN,
    )
    assert_left(model, reason)


def test_a_norm_of_nothing_linear_is_left() -> None:
    model = built("y = BN(x, *n)", x="float[2,6,4,4]", out="float[2,6,4,4]", **BN)
    assert_left(model, "no-linear-neighbour")


@pytest.mark.parametrize("vector", [(6,), (1, 1, 6), (1, 1, 6, 6)])
def test_a_vector_along_another_axis_of_the_same_size_is_left(vector: tuple[int, ...]) -> None:
    """B-078: a bare [C] on an image is its last axis."""
    model = built(
        "c = Conv(x, w) m = Mul(c, s) y = Add(m, t)",
        x="float[2,4,8,8]",
        out="float[2,6,6,6]",
        s=normal(*vector),
        t=normal(*vector, seed=1),
        **CONV,
    )
    done = folded(model)
    assert not done.records
    assert done.reasons == ["channel-axis" if len(vector) < 4 else "not-per-channel"]


def test_a_lone_mul_is_no_candidate() -> None:
    model = built(
        "c = Conv(x, w) y = Mul(c, s)", x="float[2,4,8,8]", out="float[2,6,6,6]", s=normal(6), **CONV
    )
    assert_left(model)


def test_an_affine_that_enlarges_its_input_is_left() -> None:
    model = built(
        "c = Conv(x, w) y = Mul(c, s)", x="float[1,4,3,3]", out="float[2,6,1,1]", s=normal(2, 6, 1, 1), **CONV
    )
    assert_left(model)
    model = built(
        "m = MatMul(x, w) y = Add(m, s)",
        x="float[1,4]",
        out="float[3,1,6]",
        w=normal(4, 6),
        s=normal(3, 1, 6),
    )
    assert_left(model)


@pytest.mark.parametrize(
    ("other", "more"),
    [
        ("q = Relu(c)", f", {OUT} q"),
        ("q = MaxPool<kernel_shape=[2,2]>(c)", ", float[2,6,6,6] q"),
        ("", f", {OUT} c"),
    ],
)
def test_a_conv_whose_raw_output_is_used_is_left(other: str, more: str) -> None:
    model = built(f"c = Conv(x, w) y = BN(c, *n) {other}", x=IN, out=f"{OUT} y{more}", **CONV, **BN)
    assert_left(model, "linear-output-reused")


def test_a_conv_whose_raw_output_a_body_reads_is_left() -> None:
    model = built("c = Conv(x, w) y = BN(c, *n)", x=IN, out=OUT, yes=np.bool_(True), **CONV, **BN)
    image = [2, 6, 7, 7]
    raw, other = (
        helper.make_graph(
            [helper.make_node("Neg", [value], [f"{value}_neg"])],
            f"takes_{value}",
            [],
            [helper.make_tensor_value_info(f"{value}_neg", TensorProto.FLOAT, image)],
        )
        for value in ("c", "y")
    )
    model.graph.node.append(helper.make_node("If", ["yes"], ["q"], then_branch=raw, else_branch=other))
    model.graph.output.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, image))
    assert_left(model, "linear-output-reused")


def test_a_shape_may_be_read_by_anyone() -> None:
    model = built("c = Conv(x, w) s = Shape(c) n = BN(c, *n) y = Reshape(n, s)", x=IN, out=OUT, **CONV, **BN)
    assert_folds(model, Conv=1, Shape=1, Reshape=1)


@pytest.mark.parametrize("opset", [14, 15, 17])
def test_training_mode_is_never_folded(opset: int) -> None:
    model = built(
        "c = Conv(x, w) y, m, v = BN<training_mode=1>(c, *n)", x=IN, out=OUT, opset=opset, **CONV, **BN
    )
    assert_left(model, "training-mode")


@pytest.mark.parametrize("opset", [7, 9, 13])
def test_further_outputs_meant_training_mode_before_opset_14(opset: int) -> None:
    model = built("c = Conv(x, w) y, m, v, s, t = BN(c, *n)", x=IN, out=OUT, opset=opset, **CONV, **BN)
    assert_left(model, "training-mode")


def test_further_outputs_without_a_name_are_none() -> None:
    model = built("c = Conv(x, w) y = BN(c, *n)", x=IN, out=OUT, opset=9, **CONV, **BN)
    model.graph.node[1].output.extend(["", "", "", ""])
    assert folded(model).operators == {"Conv": 1}


def test_statistics_per_element_are_not_per_channel() -> None:
    """spatial=0 of opsets 7 and 8."""
    per_element = {name: np.resize(values, (6, 7, 7)) for name, values in BN.items()}
    model = built("c = Conv(x, w) y = BN<spatial=0>(c, *n)", x=IN, out=OUT, opset=8, **CONV, **per_element)
    assert_left(model, "not-per-channel")


def test_statistics_per_element_of_a_vector_are_its_features() -> None:
    model = built(
        "c = Gemm(x, w, b) y = BN<spatial=0>(c, *n)",
        x="float[3,4]",
        out="float[3,6]",
        opset=8,
        w=normal(4, 6),
        b=normal(6),
        **BN,
    )
    assert_folds(model, Gemm=1)


@pytest.mark.parametrize(
    ("part", "value"),
    [("var", np.nan), ("var", np.inf), ("var", -1.0), ("mean", np.inf), ("scale", np.nan), ("bias", -np.inf)],
)
def test_statistics_that_are_not_finite_are_left_with_their_channel(part: str, value: float) -> None:
    parameters = norm("n", 6)
    parameters[f"n_{part}"][4] = value
    model = built("c = Conv(x, w) y = BN(c, *n)", x=IN, out=OUT, **CONV, **parameters)
    done = folded(model)
    assert done.reasons == ["not-finite-statistics"]
    assert "channel 4" in done.refusals[0].detail


def test_a_division_by_zero_is_left() -> None:
    s = normal(6, 1, 1)
    s[2] = 0
    model = built("c = Conv(x, w) m = Div(c, s) y = BN(m, *n)", x=IN, out=OUT, s=s, **CONV, **BN)
    done = folded(model)
    assert not done.records
    assert (done.reasons, done.refusals[0].detail) == (["not-finite-statistics"], "channel 2 is divided by 0")


@pytest.mark.parametrize("name", ["w", "n_scale", "n_var", "b"])
def test_what_a_caller_may_override_is_no_constant(name: str) -> None:
    model = built(
        "c = Conv(x, w, b) y = BN(c, *n)", x=IN, out=OUT, overridable=[name], b=normal(6), **CONV, **BN
    )
    assert_left(model, "overridable-initializer")


def test_an_overridable_shift_between_is_named() -> None:
    model = built(
        "c = Conv(x, w) a = Add(c, b) y = BN(a, *n)",
        x=IN,
        out=OUT,
        overridable=["b"],
        b=normal(6, 1, 1),
        **CONV,
        **BN,
    )
    assert_left(model, "overridable-initializer")


def test_parameters_that_are_computed_are_left() -> None:
    model = built(
        "c = Conv(x, w) y = BN(c, n_scale, z, n_mean, n_var)",
        x=IN,
        out=OUT,
        more={"z": "float[6]"},
        **CONV,
        **BN,
    )
    assert_left(model, "affine-not-constant")


def test_quantized_weights_are_left() -> None:
    model = built(
        "w = DequantizeLinear(q, s) c = Conv(x, w) y = BN(c, *n)",
        x=IN,
        out=OUT,
        q=np.ones((6, 4, 3, 3), np.int8),
        s=np.float32(0.1),
        **BN,
    )
    assert_left(model, "quantized-weight")


def test_nothing_passes_a_quantization() -> None:
    body = "c = Conv(x, w) q = QuantizeLinear(c, s, z) d = DequantizeLinear(q, s, z) y = BN(d, *n)"
    model = built(body, x=IN, out=OUT, s=np.float32(0.1), z=np.int8(0), **CONV, **BN)
    assert_left(model, "no-linear-neighbour")


def test_weights_that_are_computed_are_left() -> None:
    model = built("c = Conv(x, z) y = BN(c, *n)", x=IN, out=OUT, more={"z": "float[6,4,3,3]"}, **BN)
    assert_left(model, "no-linear-neighbour")


def test_the_refusal_names_the_norm() -> None:
    model = built("c = Conv(x, w) r = Relu(c) y = BN(r, *n)", x=IN, out=OUT, **CONV, **BN)
    model.graph.node[2].name = "encoder/bn"
    (refusal,) = folded(model).refusals
    assert (refusal.kind, refusal.node.name) == ("BatchNorm", "encoder/bn")
