"""The channel is followed through operators that move it or pool within it, never assumed to be anywhere."""

from __future__ import annotations

import numpy as np
import pytest
from folding_models import Array, assert_folds, assert_left, built, folded, norm, normal
from small_models import assert_agree

CONV = {"w": normal(6, 4, 3, 3)}


@pytest.mark.parametrize(
    ("between", "channels", "out"),
    [
        ("Transpose<perm=[0,1,3,2]>(c)", 6, "2,6,7,7"),
        ("Transpose<perm=[1,0,2,3]>(k)", 6, "2,6,7,7"),
        ("AveragePool<kernel_shape=[2,2]>(c)", 6, "2,6,6,6"),
        ("AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(c)", 6, "2,6,7,7"),
        ("AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>(c)", 6, "2,6,4,4"),
        ('AveragePool<kernel_shape=[3,3], auto_pad="SAME_UPPER", strides=[2,2]>(c)', 6, "2,6,4,4"),
        ("AveragePool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(c)", 6, "2,6,4,4"),
        ("GlobalAveragePool(c)", 6, "2,6,1,1"),
        ("ReduceMean<axes=[2,3]>(c)", 6, "2,6,1,1"),
        ("ReduceMean<axes=[-1,-2], keepdims=0>(c)", 6, "2,6"),
        ("Reshape(c, flat)", 6, "2,6,49"),
        ("Reshape(c, groups)", 3, "2,3,2,49"),
        ("Flatten(g)", 6, "2,6"),
        ("Squeeze(g, last)", 6, "2,6"),
        ("Unsqueeze(c, four)", 6, "2,6,7,7,1"),
        ('Pad<mode="reflect">(c, pads)', 6, "2,6,9,9"),
        ('Pad<mode="edge">(c, pads)', 6, "2,6,9,9"),
        ('Resize<mode="nearest">(c, , scales)', 6, "2,6,14,14"),
        ("Dropout(c)", 6, "2,6,7,7"),
    ],
)
def test_a_batch_norm_reaches_a_conv_through(between: str, channels: int, out: str) -> None:
    body = "c = Conv(x, w) "
    if "(g" in between:
        body += "g = GlobalAveragePool(c) "
    if "(k)" in between:
        body += "k = Transpose<perm=[1,0,2,3]>(c) "
    model = built(
        f"{body} t = {between} y = BN(t, *n)",
        x="float[2,4,9,9]",
        out=f"float[{out}]",
        flat=np.array([0, 6, -1]),
        groups=np.array([2, 3, 2, 49]),
        last=np.array([2, 3]),
        four=np.array([4]),
        pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        scales=np.array([1, 1, 2, 2], np.float32),
        **CONV,
        **norm("n", channels),
    )
    done = folded(model)
    if between.startswith("Reshape(c, groups"):
        assert done.reasons == []  # three norms of two channels each: the scale of a channel is its group's
    assert "BatchNormalization" not in done.operators
    assert_agree(model, done.model)


def test_a_max_pool_lets_scales_pass_that_are_not_negative() -> None:
    parameters = norm("n", 6)
    parameters["n_scale"] = np.abs(parameters["n_scale"])
    parameters["n_scale"][3] = 0
    body = "c = Conv(x, w) t = MaxPool<kernel_shape=[2,2], pads=[1,1,0,0]>(c) y = BN(t, *n)"
    model = built(body, x="float[2,4,9,9]", out="float[2,6,7,7]", **CONV, **parameters)
    assert_folds(model, Conv=1, MaxPool=1)
    parameters["n_scale"][1] *= -1
    assert_left(
        built(body, x="float[2,4,9,9]", out="float[2,6,7,7]", **CONV, **parameters), "activation-between"
    )


def test_a_max_pool_whose_indices_are_used_is_left() -> None:
    parameters = norm("n", 6) | {"n_scale": np.ones(6, np.float32)}
    model = built(
        "c = Conv(x, w) t, i = MaxPool<kernel_shape=[2,2]>(c) y = BN(t, *n)",
        x="float[2,4,9,9]",
        out="float[2,6,6,6] y, int64[2,6,6,6] i",
        **CONV,
        **parameters,
    )
    assert_left(model, "activation-between")


@pytest.mark.parametrize(
    "attributes", ["pads=[1,1,1,1], count_include_pad=1", "count_include_pad=1, ceil_mode=1, strides=[2,2]"]
)
def test_an_average_that_counts_what_is_not_there_lets_only_a_scale_pass(attributes: str) -> None:
    body = f"c = Conv(x, w) t = AveragePool<kernel_shape=[3,3], {attributes}>(c)"
    out = "float[2,6,7,7]" if "pads" in attributes else "float[2,6,3,3]"
    model = built(f"{body} y = BN(t, *n)", x="float[2,4,9,9]", out=out, **CONV, **norm("n", 6))
    assert_left(model, "padding-not-invariant")
    model = built(f"{body} y = Mul(t, s)", x="float[2,4,9,9]", out=out, s=normal(6, 1, 1), **CONV)
    assert_folds(model, Conv=1, AveragePool=1)


def test_the_features_of_a_linear_layer_are_followed_to_the_channel_axis_and_back() -> None:
    """B-067 (a), as torch writes BatchNorm1d on [N, L, C]; the transposes cancel."""
    body = "m = MatMul(x, w) a = Add(m, b) t = Transpose<perm=[0,2,1]>(a) n = BN(t, *n) "
    body += "r = Relu(n) y = Transpose<perm=[0,2,1]>(r)"
    model = built(body, x="float[2,7,5]", out="float[2,7,4]", w=normal(5, 4), b=normal(4), **norm("n", 4))
    (record,) = assert_folds(model, MatMul=1, Add=1, Relu=1).records
    assert record.output == "y"


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        ("Identity(m)", "channel-axis"),
        ("Transpose<perm=[0,1,2]>(m)", "channel-axis"),
        ("Reshape(m, halves)", "not-per-channel"),
    ],
)
def test_axes_of_the_same_size_are_not_the_same_axis(between: str, reason: str) -> None:
    """B-067 (b) to (d)."""
    model = built(
        f"m = MatMul(x, w) t = {between} y = BN(t, *n)",
        x="float[2,4,5]",
        out="float[2,4,4]" if "halves" not in between else "float[1,4,8]",
        w=normal(5, 4),
        halves=np.array([1, 4, 8]),
        **norm("n", 4),
    )
    assert_left(model, reason)


def test_tokens_flattened_into_the_batch_keep_their_features() -> None:
    """LeViT: BatchNorm1d over flattened tokens, of a batch whose size is not known."""
    body = "m = MatMul(x, w) f = Reshape(m, rows) n = BN(f, *n) s = Shape(m) y = Reshape(n, s)"
    model = built(
        body, x="float[B,7,5]", out="float[B,7,4]", w=normal(5, 4), rows=np.array([-1, 4]), **norm("n", 4)
    )
    (record,) = assert_folds(model, MatMul=1, Add=1).records
    assert record.output == "y"  # what was flattened for the norm alone is no longer


@pytest.mark.parametrize("back", ["Flatten<axis=0>(r)", "Reshape(r, rows)"])
def test_a_view_that_does_not_lead_back_stays(back: str) -> None:
    body = f"m = MatMul(x, w) f = Flatten<axis=2>(m) n = BN(f, *n) r = Relu(n) y = {back}"
    rows = np.array([2, 28])
    out = "float[1,56]" if "0" in back else "float[2,28]"
    model = built(body, x="float[2,7,5]", out=out, w=normal(5, 4), rows=rows, **norm("n", 4))
    done = folded(model)
    assert done.operators["BatchNormalization"] == 0
    assert done.operators["Flatten"] + done.operators["Reshape"] == 2
    assert_agree(model, done.model)


def test_a_channel_shuffle_is_followed() -> None:
    body = "c = Conv(x, w) r = Reshape(c, split) t = Transpose<perm=[0,2,1,3,4]>(r) s = Reshape(t, joined) "
    model = built(
        f"{body} y = BN(s, *n)",
        x="float[N,4,9,9]",
        out="float[N,6,7,7]",
        split=np.array([0, 2, 3, 7, 7]),
        joined=np.array([0, 6, 7, 7]),
        **CONV,
        **norm("n", 6),
    )
    assert_folds(model, Conv=1, Reshape=2, Transpose=1)


@pytest.mark.parametrize("affine", ["BN(f, *n)", "Mul(f, n_scale)"])
def test_features_of_a_flattened_image_are_not_its_channels(affine: str) -> None:
    model = built(
        f"c = Conv(x, w) f = Flatten(c) y = {affine}",
        x="float[2,4,3,4]",
        out="float[2,12]",
        **CONV,
        **norm("n", 12),
    )
    assert_left(model, *(["not-per-channel"] if "BN" in affine else []))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_pixels_that_were_channels_share_a_norm(mode: str) -> None:
    body = f'c = Conv(x, w) d = DepthToSpace<blocksize=2, mode="{mode}">(c) y = BN(d, *n)'
    weights = {"w": normal(12, 4, 3, 3)}
    model = built(body, x="float[2,4,9,9]", out="float[2,3,14,14]", **weights, **norm("n", 3))
    assert_folds(model, Conv=1, DepthToSpace=1)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_channels_that_become_pixels_of_one_are_told_apart(mode: str) -> None:
    body = f'n = BN(x, *n) d = DepthToSpace<blocksize=2, mode="{mode}">(n) y = Conv(d, w)'
    model = built(body, x="float[2,8,3,3]", out="float[2,5,6,6]", w=normal(5, 2, 1, 1), **norm("n", 8))
    assert_left(model, "not-per-channel")


def test_channels_of_pixels_share_the_norm_in_front() -> None:
    body = "n = BN(x, *n) d = SpaceToDepth<blocksize=2>(n) y = Conv(d, w)"
    model = built(body, x="float[2,2,6,6]", out="float[2,5,3,3]", w=normal(5, 8, 1, 1), **norm("n", 2))
    assert_folds(model, SpaceToDepth=1, Conv=1)


def test_a_concat_of_convs_sends_each_its_share() -> None:
    body = "a = Conv(x, w) b = Conv(x, v) r = MaxPool<kernel_shape=[1,1]>(b) c = Concat<axis=1>(a, r) "
    parameters = norm("n", 10)
    parameters["n_scale"] = np.abs(parameters["n_scale"])
    model = built(
        f"{body} y = BN(c, *n)",
        x="float[2,4,9,9]",
        out="float[2,10,7,7]",
        v=normal(4, 4, 3, 3),
        **CONV,
        **parameters,
    )
    assert_folds(model, Conv=2, MaxPool=1, Concat=1)


def test_a_concat_with_one_branch_that_does_not_fold_is_left_whole() -> None:
    body = "a = Conv(x, w) b = Conv(x, v) r = Relu(b) c = Concat<axis=1>(a, r) "
    model = built(
        f"{body} y = BN(c, *n)",
        x="float[2,4,9,9]",
        out="float[2,10,7,7]",
        v=normal(4, 4, 3, 3),
        **CONV,
        **norm("n", 10),
    )
    assert_left(model, "activation-between")


def test_matmuls_that_would_each_need_an_add_are_left() -> None:
    body = "a = MatMul(x, w) b = MatMul(x, v) c = Concat<axis=1>(a, b) y = BN(c, *n)"
    model = built(
        body, x="float[3,4]", out="float[3,10]", w=normal(4, 5), v=normal(4, 5, seed=1), **norm("n", 10)
    )
    assert_left(model, "no-linear-neighbour")


def test_a_split_gives_each_norm_its_channels() -> None:
    body = "c = Conv(x, w) a, b = Split<axis=1>(c, cut) m = BN(a, *m) n = BN(b, *n) "
    model = built(
        f"{body} y = Concat<axis=1>(n, m)",
        x="float[2,4,9,9]",
        out="float[2,6,7,7]",
        cut=np.array([2, 4]),
        **CONV,
        **norm("m", 2),
        **norm("n", 4),
    )
    assert_folds(model, Conv=1, Split=1, Concat=1)


def test_a_split_that_does_not_part_channels_is_left() -> None:
    body = "c = Conv(x, w) a, b = Split<axis=2>(c, cut) y = BN(a, *n) z = Relu(b)"
    model = built(
        body,
        x="float[2,4,9,9]",
        out="float[2,6,3,7] y, float[2,6,4,7] z",
        cut=np.array([3, 4]),
        **CONV,
        **norm("n", 6),
    )
    assert_left(model, "not-per-channel")


def test_a_batch_norm_spelled_out_in_channels_last_is_gone() -> None:
    """As TF exporters write it; the casts are from float to float, the transposes meet behind the Relu."""
    body = """
      c = Conv(x, w) t = Transpose<perm=[0,2,3,1]>(c) a = Cast<to=1>(t) b = Add(a, bias) d = Cast<to=1>(b)
      e = Sub(d, mean) f = Mul(e, s) g = Add(f, beta) h = Cast<to=1>(g) i = Cast<to=1>(h) r = Relu(i)
      k = Cast<to=1>(r) y = Transpose<perm=[0,3,1,2]>(k)"""
    model = built(
        body,
        x="float[N,4,9,9]",
        out="float[N,6,7,7]",
        bias=normal(6),
        mean=normal(6, seed=1),
        s=normal(6, seed=2),
        beta=normal(6, seed=3),
        **CONV,
    )
    (record,) = assert_folds(model, Conv=1, Relu=1).records
    assert (record.kind, record.output) == ("BatchNorm", "y")


@pytest.mark.parametrize("other", ["PRelu(n, slope)", "Softmax<axis=1>(n)", "Add(n, n)"])
def test_transposes_stay_around_what_knows_its_axes(other: str) -> None:
    body = "c = Conv(x, w) t = Transpose<perm=[0,2,3,1]>(c) n = Mul(t, s) "
    model = built(
        f"{body} r = {other} y = Transpose<perm=[0,3,1,2]>(r)",
        x="float[2,4,9,9]",
        out="float[2,6,7,7]",
        s=normal(6),
        slope=normal(6, seed=1),
        **CONV,
    )
    done = folded(model)
    assert done.operators["Transpose"] == 2
    assert "Mul" not in done.operators
    assert_agree(model, done.model)


def test_two_transposes_that_are_no_inverses_stay() -> None:
    body = "c = Conv(x, w) t = Transpose<perm=[0,2,3,1]>(c) n = Mul(t, s) y = Transpose<perm=[0,2,3,1]>(n)"
    model = built(body, x="float[2,4,9,9]", out="float[2,7,6,7]", s=normal(6), **CONV)
    assert_folds(model, Conv=1, Transpose=2)


MOVES_CHANNELS = {
    "cropped-and-padded": ('Pad<mode="edge">(c, pads)', {"pads": np.array([0, 1, 0, 0, 0, -1, 0, 0])}),
    "of-one-axis": ('Pad<mode="edge">(c, pads, , axes)', {"pads": np.array([1, -1]), "axes": np.array([1])}),
    "scaled-by-a-little": (
        'Resize<mode="nearest", coordinate_transformation_mode="asymmetric">(c, , scales)',
        {"scales": np.array([1, 1.15, 1, 1], np.float32)},
    ),
}


@pytest.mark.parametrize(("between", "constants"), MOVES_CHANNELS.values(), ids=MOVES_CHANNELS)
def test_as_many_channels_need_not_be_the_same_channels(between: str, constants: dict[str, Array]) -> None:
    model = built(
        f"c = Conv(x, w) p = {between} y = BN(p, *n)",
        x="float[2,4,9,9]",
        out="float[2,6,7,7]",
        opset=18,
        **constants,
        **CONV,
        **norm("n", 6),
    )
    assert_left(model, "not-per-channel")


def test_channels_that_a_pad_moves_are_not_those_of_the_conv_behind() -> None:
    pads = np.array([0, 1, 0, 0, 0, -1, 0, 0])
    body = 'n = Mul(x, s) m = Add(n, s) p = Pad<mode="edge">(m, pads) y = Conv(p, w)'
    model = built(body, x="float[2,4,9,9]", out="float[2,6,7,7]", s=normal(4, 1, 1), pads=pads, **CONV)
    assert folded(model).operators == {"Mul": 1, "Add": 1, "Pad": 1, "Conv": 1}


SCALES, SIZES = np.array([1, 1, 2, 2], np.float32), np.array([2, 6, 14, 14])
ENLARGES = {
    "upsample-7": (7, "Upsample<scales=[1.0,1.0,2.0,2.0]>(c)", {}),
    "upsample-9": (9, "Upsample(c, scales)", {"scales": SCALES}),
    "resize-10": (10, "Resize(c, scales)", {"scales": SCALES}),
    "resize-11": (11, "Resize(c, none, none, sizes)", {"none": np.zeros(0, np.float32), "sizes": SIZES}),
    "resize-17": (17, "Resize(c, , scales)", {"scales": SCALES}),
    "resize-18": (18, "Resize<axes=[2,3]>(c, , scales)", {"scales": SCALES[2:]}),
    "pad-8": (8, 'Pad<mode="reflect", pads=[0,0,3,3,0,0,4,4]>(c)', {}),
    "pad-18": (18, 'Pad<mode="reflect">(c, pads, , axes)', {"pads": np.array([3, 3, 4, 4]), "axes": [2, -1]}),
}


@pytest.mark.parametrize(("opset", "between", "constants"), ENLARGES.values(), ids=ENLARGES)
def test_images_that_are_enlarged_keep_their_channels(
    opset: int, between: str, constants: dict[str, Array]
) -> None:
    model = built(
        f"c = Conv(x, w) r = {between} y = BN(r, *n)",
        x="float[2,4,9,9]",
        out="float[2,6,14,14]",
        opset=opset,
        **{name: np.asarray(array) for name, array in constants.items()},
        **CONV,
        **norm("n", 6),
    )
    assert_folds(model, Conv=1, **{between.split("(")[0].split("<")[0]: 1})


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_a_window_of_padding_alone_is_no_number_of_the_image(pool: str) -> None:
    parameters = {name: np.abs(values) for name, values in norm("n", 6).items()}
    model = built(
        f"c = Conv(x, w) p = {pool}<kernel_shape=[2,2], dilations=[3,3], pads=[1,1,1,1]>(c) y = BN(p, *n)",
        x="float[1,4,4,4]",
        out="float[1,6,1,1]",
        opset=19,
        **CONV,
        **parameters,
    )
    assert_left(model, "padding-not-invariant")
