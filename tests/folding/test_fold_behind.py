"""An affine behind a linear operator goes into its weights."""

from __future__ import annotations

import numpy as np
import pytest
from folding_models import assert_folds, assert_left, built, folded, norm, normal
from small_models import assert_agree

IN, OUT = "float[2,4,9,9]", "float[2,6,7,7]"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("weights", "data", "attributes", "result"),
    [
        ((6, 4, 3), "4,9", "", "6,7"),
        ((6, 4, 3, 3), "4,9,9", "", "6,7,7"),
        ((6, 4, 2, 2, 2), "4,5,5,5", "", "6,4,4,4"),
        ((8, 1, 3, 3), "4,9,9", "group=4", "8,7,7"),
        ((6, 2, 3, 3), "4,9,9", "group=2, pads=[1,1,1,1]", "6,9,9"),
        ((6, 4, 1), "4,1", "", "6,1"),
        ((6, 4, 3, 3), "4,9,9", 'auto_pad="SAME_UPPER", strides=[2,2]', "6,5,5"),
    ],
)
def test_a_batch_norm_goes_into_a_conv(
    weights: tuple[int, ...], data: str, attributes: str, result: str, bias: bool
) -> None:
    operands = "x, w, b" if bias else "x, w"
    model = built(
        f"c = Conv<{attributes}>({operands}) y = BN<epsilon=0.01>(c, *n)",
        x=f"float[2,{data}]",
        out=f"float[2,{result}]",
        w=normal(*weights),
        b=normal(weights[0]),
        **norm("n", weights[0]),
    )
    assert_folds(model, Conv=1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("weights", "data", "attributes", "result", "channels"),
    [
        ((3, 4, 3), "3,5", "", "4,7", 4),
        ((3, 4, 3, 3), "3,5,5", "", "4,7,7", 4),
        ((4, 3, 2, 2), "4,5,5", "group=2, strides=[2,2]", "6,10,10", 6),
        ((4, 2, 2, 2), "4,5,5", "group=2", "4,6,6", 4),
        ((4, 1, 3, 3), "4,5,5", "group=4, strides=[2,2], output_padding=[1,1]", "4,12,12", 4),
        ((3, 4, 2, 2, 2), "3,3,3,3", "", "4,4,4,4", 4),
    ],
)
def test_a_batch_norm_goes_into_a_transposed_conv(
    weights: tuple[int, ...], data: str, attributes: str, result: str, channels: int, bias: bool
) -> None:
    operands = "x, w, b" if bias else "x, w"
    model = built(
        f"c = ConvTranspose<{attributes}>({operands}) y = BN(c, *n)",
        x=f"float[2,{data}]",
        out=f"float[2,{result}]",
        w=normal(*weights),
        b=normal(channels),
        **norm("n", channels),
    )
    assert_folds(model, ConvTranspose=1)


@pytest.mark.parametrize("c", [None, (), (1,), (5,), (1, 5), (1, 1)])
@pytest.mark.parametrize("turned", [0, 1])
def test_a_batch_norm_goes_into_a_gemm_whatever_its_attributes(
    c: tuple[int, ...] | None, turned: int
) -> None:
    attributes = f"alpha=0.5, beta=2.0, transB={turned}, transA={turned}"
    operands = "x, w" if c is None else "x, w, c"
    model = built(
        f"g = Gemm<{attributes}>({operands}) y = BN(g, *n)",
        x="float[4,3]" if turned else "float[3,4]",
        out="float[3,5]",
        w=normal(*((5, 4) if turned else (4, 5))),
        c=normal(*(c or ())),
        **norm("n", 5),
    )
    assert_folds(model, Gemm=1)


@pytest.mark.parametrize("c", [(3, 1), (3, 5), (5, 1), (5, 5)])
def test_a_gemm_whose_bias_varies_along_the_rows_is_left(c: tuple[int, int]) -> None:
    model = built(
        "g = Gemm(x, w, c) y = BN(g, *n)",
        x=f"float[{c[0]},4]",
        out=f"float[{c[0]},5]",
        w=normal(4, 5),
        c=normal(*c),
        **norm("n", 5),
    )
    assert_left(model, "not-per-channel")


def test_a_bias_that_is_computed_is_left() -> None:
    model = built(
        "g = Gemm(x, w, c) y = BN(g, *n)",
        x="float[3,4]",
        out="float[3,5]",
        more={"c": "float[5]"},
        w=normal(4, 5),
        **norm("n", 5),
    )
    assert_left(model, "non-constant-bias")


def test_a_matmul_gets_an_add_as_its_bias() -> None:
    model = built(
        "m = MatMul(x, w) y = BN(m, *n)", x="float[3,4]", out="float[3,5]", w=normal(4, 5), **norm("n", 5)
    )
    assert_folds(model, MatMul=1, Add=1)


@pytest.mark.parametrize("add", ["Add(m, b)", "Add(b, m)"])
def test_the_add_behind_a_matmul_is_its_bias_and_keeps_its_name(add: str) -> None:
    model = built(
        f"m = MatMul(x, w) a = {add} y = BN(a, *n)",
        x="float[3,4]",
        out="float[3,5]",
        w=normal(4, 5),
        b=normal(5),
        **norm("n", 5),
    )
    done = assert_folds(model, MatMul=1, Add=1)
    assert done.initializers == {"w", "b"}


def test_a_constant_on_the_left_has_its_channels_in_the_rows() -> None:
    model = built(
        "m = MatMul(w, x) y = BN(m, *n)", x="float[2,4,7]", out="float[2,5,7]", w=normal(5, 4), **norm("n", 5)
    )
    assert_folds(model, MatMul=1, Add=1)


def test_batched_weights_share_their_features() -> None:
    model = built(
        "m = MatMul(x, w) y = Mul(m, s)", x="float[2,3,4]", out="float[2,3,5]", w=normal(2, 4, 5), s=normal(5)
    )
    assert_folds(model, MatMul=1)


@pytest.mark.parametrize(
    ("equation", "weights", "data", "result"),
    [
        ("bsf,fo->bos", (4, 5), "2,3,4", "2,5,3"),
        ("of,bfs->bos", (5, 4), "2,4,3", "2,5,3"),
        ("bf,fog->bog", (4, 5, 3), "2,4", "2,5,3"),
    ],
)
def test_a_batch_norm_goes_into_an_einsum(
    equation: str, weights: tuple[int, ...], data: str, result: str
) -> None:
    first = equation.split(",")[0]
    operands = "w, x" if len(first) == len(weights) and first[0] == "o" else "x, w"
    model = built(
        f'm = Einsum<equation="{equation}">({operands}) y = BN(m, *n)',
        x=f"float[{data}]",
        out=f"float[{result}]",
        w=normal(*weights),
        **norm("n", 5),
    )
    assert_folds(model, Einsum=1, Add=1)


@pytest.mark.parametrize("equation", ["bsf,fo->bso", "bii,io->bio"])
def test_an_einsum_whose_channels_stand_elsewhere_is_left(equation: str) -> None:
    model = built(
        f'm = Einsum<equation="{equation}">(x, w) y = BN(m, *n)',
        x="float[2,4,4]",
        out="float[2,4,5]",
        w=normal(4, 5),
        **norm("n", 4),
    )
    assert_left(model, "channel-axis" if "s" in equation else "no-linear-neighbour")


CHANNEL = (6, 1, 1)


@pytest.mark.parametrize(
    "chain",
    [
        "y = Mul(c, s)",
        "y = Mul(s, c)",
        "y = Add(t, c)",
        "y = Sum(c, t)",
        "y = Sub(c, t)",
        "y = Sub(t, c)",
        "y = Div(c, s)",
        "y = Neg(c)",
        "a = Mul(c, s) y = Add(a, t)",
        "a = Sub(c, t) b = Mul(a, s) d = Div(b, half) e = Neg(d) f = Identity(e) y = Sub(t, f)",
        "a = BN(c, *n) y = BN(a, *m)",
        "a = BN(c, *n) b = Mul(a, s) y = Add(b, t)",
        "a = Dropout(c) y = BN(a, *n)",
        "a = Cast<to=1>(c) y = BN(a, *n)",
        "a = Cast<to=11>(c) b = Mul(a, d_s) d = Add(b, d_t) y = Cast<to=1>(d)",
        "y = Mul(c, half)",
    ],
)
@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1)])
def test_any_chain_of_affines_is_one(chain: str, shape: tuple[int, ...]) -> None:
    scale, shift = normal(*shape, seed=1), normal(*shape, seed=2)
    model = built(
        f"c = Conv(x, w) {chain}",
        x=IN,
        out=OUT,
        w=normal(6, 4, 3, 3),
        s=scale,
        t=shift,
        half=np.float32(0.5),
        d_s=scale.astype(np.float64),
        d_t=shift.astype(np.float64),
        **norm("n", 6),
        **norm("m", 6),
    )
    done = assert_folds(model, Conv=1)
    assert len(done.records) == 1


def test_a_chain_is_rounded_once() -> None:
    """A scale that no fp16 weight survives, undone by the next one."""
    model = built(
        "c = Conv(x, w) a = Mul(c, s) y = Div(a, s)",
        x="float16[1,4,9,9]",
        out="float16[1,6,7,7]",
        w=normal(6, 4, 3, 3, dtype=np.float16),
        s=np.float16(1e-7),
    )
    done = folded(model)
    assert done.operators == {"Conv": 1}
    np.testing.assert_array_equal(done.weight("w"), normal(6, 4, 3, 3, dtype=np.float16))


def test_a_single_operator_is_as_good_as_a_batch_norm_in_the_report() -> None:
    model = built(
        "c = Conv(x, w) a = Mul(c, s) y = Add(a, t)",
        x=IN,
        out=OUT,
        w=normal(6, 4, 3, 3),
        s=normal(*CHANNEL),
        t=normal(*CHANNEL, seed=1),
    )
    (record,) = folded(model).records
    assert (record.kind, record.spelling, record.operator) == ("BatchNorm", "Conv Mul Add", "Conv")
    assert (record.input, record.output, record.nodes_replaced) == ("x", "y", 2)
    assert 0 < record.rounding < 2**-23


@pytest.mark.parametrize("chain", ["y = Add(m, b)", "a = Sub(m, b) y = Relu(a)", "y = Sum(m, b)"])
def test_the_bias_of_a_matmul_is_no_fold(chain: str) -> None:
    model = built(
        f"m = MatMul(x, w) {chain}", x="float[2,3,4]", out="float[2,3,5]", w=normal(4, 5), b=normal(5)
    )
    assert_left(model)


def test_chains_of_convs_fold_to_a_fixpoint() -> None:
    body = "c0 = Conv(x, w0) b0 = BN(c0, *n0) r0 = Relu(b0) "
    body += "c1 = Conv(r0, w1) b1 = BN(c1, *n1) c2 = Conv(b1, w2) y = BN(c2, *n2)"
    model = built(
        body,
        x="float[2,3,9,9]",
        out="float[2,3,3,3]",
        w0=normal(4, 3, 3, 3),
        w1=normal(5, 4, 3, 3),
        w2=normal(3, 5, 3, 3),
        **norm("n0", 4),
        **norm("n1", 5),
        **norm("n2", 3),
    )
    done = assert_folds(model, Conv=3, Relu=1)
    assert {record.output for record in done.records} == {"b0", "b1", "y"}


def test_an_explicitly_empty_bias_is_none() -> None:
    model = built("c = Conv(x, w) y = BN(c, *n)", x=IN, out=OUT, w=normal(6, 4, 3, 3), **norm("n", 6))
    model.graph.node[0].input.append("")
    assert_folds(model, Conv=1)


def test_a_channel_of_scale_zero_keeps_its_shift() -> None:
    parameters = norm("n", 6)
    parameters["n_scale"][2] = 0
    model = built(
        "c = Conv(x, w) y = BN(c, *n)",
        x=IN,
        out=OUT,
        w=normal(6, 4, 3, 3),
        **parameters,
    )
    assert_folds(model, Conv=1)


def test_zero_variances_are_what_epsilon_is_for() -> None:
    parameters = norm("n", 6) | {"n_var": np.zeros(6, np.float32)}
    model = built(
        "c = Conv(x, w) y = BN(c, *n)",
        x=IN,
        out=OUT,
        w=normal(6, 4, 3, 3),
        **parameters,
    )
    done = folded(model)
    assert done.operators == {"Conv": 1}
    assert_agree(model, done.model, tolerance=2e-3)


def test_what_is_said_to_be_skipped_is_left() -> None:
    model = built(
        "c = Conv(x, w) y = BN(c, *n)",
        x=IN,
        out=OUT,
        w=normal(6, 4, 3, 3),
        **norm("n", 6),
    )
    done = folded(model, skip=["y"])
    assert not done.records
    assert done.reasons == ["skipped"]
