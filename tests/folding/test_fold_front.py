"""An affine in front of linear operators goes into their weights, as far as every output sees all of it."""

from __future__ import annotations

import numpy as np
import pytest
from folding_models import assert_folds, assert_left, built, folded, norm, normal
from small_models import assert_agree


@pytest.mark.parametrize(
    ("weights", "attributes", "result"),
    [
        ((6, 4, 3, 3), "", "6,7,7"),
        ((6, 4, 3, 3), 'auto_pad="VALID", strides=[2,2]', "6,4,4"),
        ((6, 4, 1, 1), 'auto_pad="SAME_UPPER"', "6,9,9"),
        ((6, 2, 3, 3), "group=2", "6,7,7"),
        ((8, 1, 3, 3), "group=4", "8,7,7"),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_batch_norm_goes_into_the_conv_behind_it(
    weights: tuple[int, ...], attributes: str, result: str, bias: bool
) -> None:
    operands = "n, w, b" if bias else "n, w"
    model = built(
        f"n = BN(x, *n) y = Conv<{attributes}>({operands})",
        x="float[2,4,9,9]",
        out=f"float[2,{result}]",
        w=normal(*weights),
        b=normal(weights[0]),
        **norm("n", 4),
    )
    done = assert_folds(model, Conv=1)
    (record,) = done.records
    assert (record.input, record.output, record.spelling) == ("x", "y", "BatchNormalization Conv")


PADDED = [
    ("y = Conv<pads=[1,1,1,1]>(n, w)", "float[2,6,9,9]"),
    ('y = Conv<auto_pad="SAME_UPPER">(n, w)', "float[2,6,9,9]"),
    ('y = Conv<auto_pad="SAME_LOWER">(n, w)', "float[2,6,9,9]"),
    ('p = Pad<mode="constant">(n, pads) y = Conv(p, w)', "float[2,6,9,9]"),
    (
        "p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(n) y = Conv(p, w)",
        "float[2,6,7,7]",
    ),
]


@pytest.mark.parametrize(("behind", "out"), PADDED)
def test_a_shift_does_not_pass_through_padding(behind: str, out: str) -> None:
    model = built(
        f"n = BN(x, *n) {behind}",
        x="float[2,4,9,9]",
        out=out,
        w=normal(6, 4, 3, 3),
        pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        **norm("n", 4),
    )
    assert_left(model, "padding-not-invariant")


@pytest.mark.parametrize(("behind", "out"), PADDED)
def test_a_scale_does(behind: str, out: str) -> None:
    model = built(
        f"n = Mul(x, s) {behind}",
        x="float[2,4,9,9]",
        out=out,
        w=normal(6, 4, 3, 3),
        pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        s=normal(1, 4, 1, 1),
    )
    done = folded(model)
    assert "Mul" not in done.operators
    assert_agree(model, done.model)


@pytest.mark.parametrize(
    ("weights", "attributes", "out"),
    [
        ((4, 3, 3, 3), "strides=[2,2], pads=[1,1,1,1]", "float[2,3,17,17]"),
        ((4, 3, 2, 2), "group=2", "float[2,6,10,10]"),
        ((4, 1, 3, 3), "group=4, output_padding=[1,1], strides=[2,2]", "float[2,4,20,20]"),
    ],
)
def test_a_scale_goes_into_any_transposed_conv_and_a_shift_does_not(
    weights: tuple[int, ...], attributes: str, out: str
) -> None:
    body = f"y = ConvTranspose<{attributes}>(n, w)"
    model = built(f"n = Mul(x, s) {body}", x="float[2,4,9,9]", out=out, w=normal(*weights), s=normal(4, 1, 1))
    assert_folds(model, ConvTranspose=1)
    model = built(f"n = BN(x, *n) {body}", x="float[2,4,9,9]", out=out, w=normal(*weights), **norm("n", 4))
    assert_left(model, "padding-not-invariant")


@pytest.mark.parametrize("groups", [1, 2])
def test_a_shift_goes_into_a_transposed_conv_of_kernel_one(groups: int) -> None:
    model = built(
        f"n = BN(x, *n) y = ConvTranspose<group={groups}>(n, w)",
        x="float[2,4,9,9]",
        out=f"float[2,{3 * groups},9,9]",
        w=normal(4, 3, 1, 1),
        **norm("n", 4),
    )
    assert_folds(model, ConvTranspose=1)


@pytest.mark.parametrize("c", ["", ", c"])
@pytest.mark.parametrize("turned", [0, 1])
def test_a_batch_norm_goes_into_the_gemm_behind_it(c: str, turned: int) -> None:
    model = built(
        f"n = BN(x, *n) y = Gemm<alpha=0.5, beta=2.0, transB={turned}>(n, w{c})",
        x="float[3,4]",
        out="float[3,5]",
        w=normal(*((5, 4) if turned else (4, 5))),
        c=normal(5),
        **norm("n", 4),
    )
    assert_folds(model, Gemm=1)


def test_the_features_of_a_transposed_gemm_stand_first() -> None:
    model = built(
        "n = Mul(x, s) m = Add(n, t) y = Gemm<transA=1>(m, w)",
        x="float[4,3]",
        out="float[3,5]",
        w=normal(4, 5),
        s=normal(4, 1),
        t=normal(4, 1, seed=1),
    )
    assert_folds(model, Gemm=1)


@pytest.mark.parametrize(
    "add", ["m = MatMul(n, w) y = Add(m, b)", "m = MatMul(n, w) y = Add(b, m)", "y = MatMul(n, w)"]
)
def test_a_batch_norm_goes_into_the_matmul_behind_it(add: str) -> None:
    model = built(
        f"n = BN(x, *n) {add}", x="float[3,4]", out="float[3,5]", w=normal(4, 5), b=normal(5), **norm("n", 4)
    )
    assert_folds(model, MatMul=1, Add=1)


def test_a_constant_on_the_left_takes_in_the_rows() -> None:
    model = built(
        "n = BN(x, *n) y = MatMul(w, n)", x="float[2,4,7]", out="float[2,5,7]", w=normal(5, 4), **norm("n", 4)
    )
    assert_folds(model, MatMul=1, Add=1)


def test_an_einsum_takes_in_what_it_sums_over() -> None:
    model = built(
        'n = BN(x, *n) y = Einsum<equation="bfs,fo->bso">(n, w)',
        x="float[2,4,7]",
        out="float[2,7,5]",
        w=normal(4, 5),
        **norm("n", 4),
    )
    assert_folds(model, Einsum=1, Add=1)


def test_a_shift_that_an_einsum_repeats_is_left() -> None:
    model = built(
        'n = Mul(x, s) m = Add(n, s) y = Einsum<equation="bf,fo->bo">(m, w)',
        x="float[2,4]",
        out="float[2,5]",
        w=normal(1, 5),
        s=np.float32(0.5),
    )
    assert_left(model)


def test_a_shift_that_an_einsum_sums_more_than_once_is_left() -> None:
    model = built(
        'n = BN(x, *n) y = Einsum<equation="bfs,fo->bo">(n, w)',
        x="float[2,4,7]",
        out="float[2,5]",
        w=normal(4, 5),
        **norm("n", 4),
    )
    assert_left(model, "padding-not-invariant")


@pytest.mark.parametrize(
    "head",
    [
        "f = Flatten(n) y = Gemm(f, w)",
        "g = GlobalAveragePool(n) f = Flatten(g) y = Gemm(f, v)",
        "g = ReduceMean<axes=[2,3], keepdims=0>(n) y = Gemm(g, v)",
        "g = ReduceMean<axes=[-1,2]>(n) s = Squeeze(g, two) y = Gemm(s, v)",
        "t = Transpose<perm=[0,2,3,1]>(n) f = Flatten(t) y = Gemm(f, w)",
        "c = Concat<axis=1>(n, x) g = GlobalAveragePool(c) f = Flatten(g) y = Gemm(f, double)",
    ],
)
def test_a_classifier_head_takes_in_the_norm_in_front(head: str) -> None:
    constants = {"w": normal(60, 7), "v": normal(4, 7), "double": normal(8, 7), "two": np.array([2, 3])}
    model = built(f"n = BN(x, *n) {head}", x="float[2,4,3,5]", out="float[2,7]", **constants, **norm("n", 4))
    assert_folds(model, **{node.op_type: 1 for node in model.graph.node[1:]})


def test_two_branches_that_meet_again_stay_right() -> None:
    head = "t, u = Split<axis=1>(n, cut) f = Concat<axis=1>(u, t) g = GlobalAveragePool(f) h = Flatten(g) "
    model = built(
        f"n = BN(x, *n) {head} y = Gemm(h, v)",
        x="float[2,4,3,5]",
        out="float[2,7]",
        v=normal(4, 7),
        cut=np.array([1, 3]),
        **norm("n", 4),
    )
    assert_agree(model, folded(model).model)


def test_every_reader_takes_it_in() -> None:
    body = "n = BN(x, *n) a = Conv(n, w) b = Conv(n, v) y = Add(a, b)"
    model = built(
        body,
        x="float[2,4,9,9]",
        out="float[2,6,9,9]",
        w=normal(6, 4, 1, 1),
        v=normal(6, 4, 1, 1, seed=1),
        **norm("n", 4),
    )
    assert_folds(model, Conv=2, Add=1)


def test_both_readers_of_one_weight_take_it_in() -> None:
    body = "n = BN(x, *n) a = Conv(n, w) b = Conv<dilations=[2,2]>(n, w) y = Add(a, b)"
    model = built(body, x="float[2,4,9,9]", out="float[2,6,9,9]", w=normal(6, 4, 1, 1), **norm("n", 4))
    assert_folds(model, Conv=2, Add=1)


@pytest.mark.parametrize("other", ["b = Relu(n)", "b = Conv<pads=[1,1,1,1]>(n, v)"])
def test_one_reader_that_cannot_take_it_in_is_enough_to_leave_it(other: str) -> None:
    model = built(
        f"n = BN(x, *n) y = Conv(n, w) {other} z = Identity(b)",
        x="float[2,4,9,9]",
        out="float[2,6,9,9] y, float[2,M,9,9] z",
        w=normal(6, 4, 1, 1),
        v=normal(6, 4, 3, 3),
        **norm("n", 4),
    )
    done = folded(model)
    assert not done.records


def test_an_affine_that_the_graph_gives_out_stays() -> None:
    model = built(
        "n = BN(x, *n) y = Conv(n, w)",
        x="float[2,4,9,9]",
        out="float[2,6,9,9] y, float[2,4,9,9] n",
        w=normal(6, 4, 1, 1),
        **norm("n", 4),
    )
    assert_left(model, "no-linear-neighbour")


def test_a_split_gives_each_reader_its_share() -> None:
    body = "n = BN(x, *n) a, b = Split<axis=1>(n, cut) c = Conv(a, w) d = Conv(b, v) y = Add(c, d)"
    model = built(
        body,
        x="float[2,4,9,9]",
        out="float[2,6,9,9]",
        w=normal(6, 1, 1, 1),
        v=normal(6, 3, 1, 1),
        cut=np.array([1, 3]),
        **norm("n", 4),
    )
    assert_folds(model, Split=1, Conv=2, Add=1)


def test_a_part_of_a_split_that_needs_nothing_may_go_out() -> None:
    body = "s = Concat<axis=1>(n, x) a, b = Split<axis=1>(s, cut) y = Conv(a, w)"
    model = built(
        f"n = Mul(x, c) {body}",
        x="float[2,4,9,9]",
        out="float[2,6,9,9] y, float[2,4,9,9] b",
        w=normal(6, 4, 1, 1),
        c=normal(4, 1, 1),
        cut=np.array([4, 4]),
    )
    assert_folds(model, Concat=1, Split=1, Conv=1)


def test_behind_is_preferred_and_both_ends_of_one_operator_fold() -> None:
    body = "n = BN(x, *n) c = Conv(n, w) m = BN(c, *m) y = Relu(m)"
    model = built(
        body, x="float[2,4,9,9]", out="float[2,6,7,7]", w=normal(6, 4, 3, 3), **norm("n", 4), **norm("m", 6)
    )
    done = assert_folds(model, Conv=1, Relu=1)
    (record,) = done.records
    assert (record.input, record.output, record.nodes_replaced) == ("x", "m", 2)


def test_an_affine_behind_a_norm_is_that_norms_own() -> None:
    body = "n = LayerNormalization(x, g) s = Mul(n, c) t = Add(s, d) y = MatMul(t, w)"
    model = built(
        body,
        x="float[3,4]",
        out="float[3,5]",
        w=normal(4, 5),
        g=normal(4),
        c=normal(4, seed=1),
        d=normal(4, seed=2),
    )
    assert_left(model)


def test_the_input_of_a_site_is_where_the_data_now_comes_from() -> None:
    body = "n = BN(x, *n) f = Flatten(n) g = Gemm(f, w) m = BN(g, *m) y = Relu(m)"
    model = built(body, x="float[2,4,3,3]", out="float[2,6]", w=normal(36, 6), **norm("n", 4), **norm("m", 6))
    (record,) = assert_folds(model, Flatten=1, Gemm=1, Relu=1).records
    assert (record.input, record.output) == ("x", "m")
