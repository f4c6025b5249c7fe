"""Made inputs: roles of integers, seeds, masks, images that a model refuses, what users give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from parity_models import floats, model

from normfuse.errors import CannotVerifyError, UsageError
from normfuse.parity.inputs import Trial, trials
from normfuse.parity.model import Model, serialize
from normfuse.parity.roles import role_of
from normfuse.parity.sessions import Session
from normfuse.parity.settings import Settings

I64, I32, BOOL = np.dtype(np.int64), np.dtype(np.int32), np.dtype(bool)
TABLE = floats({"t": np.zeros((30, 4))})


def of(*text: str, domains: str = "", **constants: np.ndarray) -> Model:
    return Model(Path("m.onnx"), model(*text, constants={**constants}, domains=domains))


def trials_of(which: Model, settings: Settings | None = None) -> tuple[list[Trial], list[str]]:
    settings = settings or Settings()
    return trials(which, Session(serialize(which.proto), settings), settings)


def made(which: Model, settings: Settings | None = None) -> list[Trial]:
    return trials_of(which, settings)[0]


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = Gather(t, ids)", 0, 30),
        ("c = Cast<to=7>(ids) y = Gather(t, c)", 0, 30),
        ("two = Constant<value_int=2>() p = Add(ids, two) y = Gather(t, p)", 0, 28),
        ("two = Constant<value_int=2>() p = Sub(ids, two) y = Gather(t, p)", 2, 32),
        ("d = Constant<value_int=9>() v = Constant<value_floats=[0.0, 1.0]>() y = OneHot(ids, d, v)", 0, 9),
        ("r = Constant<value_ints=[0, 1, 2, 3, 4]>() e = Equal(ids, r) y = Cast<to=1>(e)", 0, 5),
        ("u = Gather(t, ids) w = Gather(small, ids) y = Add(u, w)", 0, 3),
    ],
)
def test_indices_stay_within_what_they_look_up(body: str, low: int, high: int) -> None:
    which = of("int64[B, 1] ids", "float[P, Q, R] y", body, **TABLE, **floats({"small": np.zeros((3, 4))}))
    role = role_of(which, "ids", I64)
    assert (role.kind, role.low, role.high) == ("index", low, high)


@pytest.mark.parametrize(
    ("name", "dtype", "kind"),
    [
        ("attention_mask", I64, "mask"),
        ("padding_mask", BOOL, "mask"),
        ("position_ids", I64, "position"),
        ("src_lengths", I64, "length"),
        ("sr", I64, "rate"),
        ("timestep", I64, "index"),
        ("use_cache_branch", BOOL, "flag"),
        ("image", np.dtype(np.uint8), "pixels"),
        ("state", I32, "plain"),
    ],
)
def test_names_tell_what_use_does_not(name: str, dtype: np.dtype, kind: str) -> None:
    assert role_of(of("float[1] x", "float[1] y", "y = Neg(x)"), name, dtype).kind == kind


def test_masks_are_ones_and_lengths_the_size_that_they_measure() -> None:
    which = of(
        "float[B, T] x, int64[B] lengths, bool[B, T] mask",
        "float[B, T] y, int64[B] l, bool[B, T] m",
        "y = Neg(x) l = Identity(lengths) m = Identity(mask)",
    )
    feed = made(which)[0].feed
    assert feed["mask"].all()
    assert set(feed["lengths"].tolist()) == {feed["x"].shape[1]}


@pytest.mark.parametrize(
    ("inputs", "body", "name", "values"),
    [
        ("float[T, B, 4] x, int32[B] n", "y, h = GRU<hidden_size=4>(x, w, w, , n)", "n", {2}),
        ("float[B, T, 4] x, int32[B] n",
         "t = Transpose<perm=[1, 0, 2]>(x) y, h = GRU<hidden_size=4>(t, w, w, , n)", "n", {7}),
        ("float[T, B, 4] x, int64[B] n", "y = ReverseSequence(x, n)", "n", {2}),
        ("float[N, 4] x, int64[1] k", "y, i = TopK(x, k)", "k", {1}),
        ("float[N, 4] x, float[2] orig_im_size", "y = Add(x, x)", "orig_im_size", {64, 96}),
        ("float[N, 3, H, W] x, int64[N, 2] target_sizes", "y = Neg(x)", "target_sizes", {64, 96}),
        ("float[N, H, W, 3] x, float[N, 2] im_shape", "y = Neg(x)", "im_shape", {64, 96}),
        ("float[N, 4] x, float[N, 2] scale_factor", "y = Neg(x)", "scale_factor", {1}),
        ("float[N, 4, H, W] x, float[4] s", "y = Resize(x, , s)", "s", {1}),
        ("float[B, past, 4] key, int32 past_seq_len", "y = Neg(key)", "past_seq_len", {3}),
        ("int64[B, S] ids, float[B, past, 4] k, int32 total_seq_len", "y = Neg(k)", "total_seq_len", {10}),
    ],
)  # fmt: skip
def test_what_an_input_measures_or_counts(inputs: str, body: str, name: str, values: set[int]) -> None:
    constants = floats({"w": np.ones((1, 12, 4))}) if "w," in body else {}
    feed = made(of(inputs, "float[P, Q] y", body, **constants))[0].feed
    assert set(np.unique(feed[name]).tolist()) == values


@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127)])
def test_bytes_span_their_range(dtype: str, low: int, high: int) -> None:
    x = made(of(f"{dtype}[N, 3, H, W] x", "float[N, 3, H, W] y", "y = Cast<to=1>(x)"))[0].feed["x"]
    assert (x.min(), x.max()) == (low, high)


@pytest.mark.parametrize("root", ["Log", "Sqrt"])
def test_numbers_are_positive_where_others_give_nothing(root: str) -> None:
    """What is centred behind a logarithm is NaN in every row that holds a negative number."""
    body = f"z = {root}(x) m = ReduceMean<axes=[-1]>(z) y = Sub(z, m)"
    found, notes = trials_of(of("float[B, 64] x", "float[B, 64] y", body))
    assert all((trial.feed["x"] > 0).all() for trial in found if "normal" in trial.label)
    assert "numbers are positive: of others the model makes NaN only" in notes


def test_where_no_number_gives_anything_they_stay_as_they_are() -> None:
    found, _ = trials_of(of("float[B, 4] x", "float[B, 4] y", "z = Sub(x, x) y = Div(z, z)"))
    assert (found[0].feed["x"] < 0).any()


def test_a_size_that_the_graph_asks_for_is_found() -> None:
    constants = floats({"w": np.ones((4, 5, 3)), "p": np.ones((10, 4))})
    body = "c = Conv<strides=[2], pads=[1, 1]>(x, w) t = Transpose<perm=[0, 2, 1]>(c) y = Add(t, p)"
    which = of("float[batch, features, frames] x", "float[batch, 10, 4] y", body, **constants)
    assert made(which)[0].feed["x"].shape == (2, 5, 20)


def test_rows_come_at_a_longer_sequence_where_that_is_accepted() -> None:
    def lengths(body: str, **constants: np.ndarray) -> list[int]:
        found = made(of("float[B, S, 4] x", "float[B, S, 4] y", body, **constants))
        return [trial.feed["x"].shape[1] for trial in found]

    assert lengths("y = Neg(x)") == [7, 13, 1]
    assert lengths("y = Add(x, p)", **floats({"p": np.ones((1, 9, 4))})) == [9, 9, 1]


def test_an_index_inside_a_function_is_found() -> None:
    which = of("int64[B, S] ids", "float[B, S, 4] y", "y = own.Look(ids)", domains=', "own": 1')
    look = onnx.helper.make_node("Gather", ["table", "i"], ["o"])
    table = onnx.helper.make_node("Constant", [], ["table"], value=onnx.numpy_helper.from_array(TABLE["t"]))
    which.proto.functions.append(
        onnx.helper.make_function("own", "Look", ["i"], ["o"], [table, look], which.proto.opset_import)
    )
    role = role_of(which, "ids", I64)
    assert (role.kind, role.low, role.high) == ("index", 0, 30)


def test_what_is_no_tensor_cannot_be_fed() -> None:
    which = of("seq(float[N, 4]) xs", "float[N, 4] y", "i = Constant<value_int=0>() y = SequenceAt(xs, i)")
    with pytest.raises(CannotVerifyError, match="'xs' is of type sequence, and only tensors can be fed"):
        made(which)


def test_positions_go_on_after_the_past() -> None:
    which = of(
        "int64[B, S] position_ids, float[B, past, 2] key",
        "float[B, S, 4] y, float[B, past, 2] k",
        "y = Gather(t, position_ids) k = Neg(key)",
        **TABLE,
    )
    first = made(which)[0].feed["position_ids"]
    assert first.tolist() == [[3, 4, 5, 6, 7, 8, 9]] * 2


def test_the_past_is_tried_empty_and_filled() -> None:
    which = of("float[B, past, 2] key", "float[B, past, 2] k", "k = Neg(key)")
    assert {trial.feed["key"].shape[1] for trial in made(which)} == {0, 3, 5}


def test_the_seed_decides() -> None:
    which = of("float[B, 4] x", "float[B, 4] y", "y = Neg(x)")
    first, again, other = (made(which, Settings(seed=s))[0].feed["x"] for s in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_hard_rows_are_among_the_inputs() -> None:
    rows = next(
        t for t in made(of("float[B, S, 8] x", "float[B, S, 8] y", "y = Neg(x)")) if "rows" in t.label
    )
    x = rows.feed["x"].reshape(-1, 8)
    deviations = x.std(axis=1)
    assert (np.abs(x).max(axis=1) == 0).any()
    assert ((deviations > 0) & (deviations < 1e-2)).any()
    assert (x.mean(axis=1) > 900).any()


def test_a_model_that_refuses_a_size_is_tried_at_others() -> None:
    """Only a height of 48 and a width of 160 fill rows of 240."""
    which = of(
        "float[N, 3, H, W] x",
        "float[P, Q, R, T] y",
        "s = Constant<value_ints=[0, 3, 240, -1]>() y = Reshape(x, s)",
    )
    found = made(which)
    assert found[0].feed["x"].shape == (2, 3, 48, 160)
    assert "H=48 W=160" in found[0].label


def test_no_accepted_size_is_an_error_with_the_reason() -> None:
    which = of("float[N] x", "float[M, K] y", "s = Constant<value_ints=[9973, -1]>() y = Reshape(x, s)")
    with pytest.raises(CannotVerifyError, match=r"accepts none of the inputs.*--dim"):
        made(which)


def test_overridable_initializers_are_not_fed() -> None:
    which = of("float[B, 2] x, float[2] w", "float[B, 2] y", "y = Mul(x, w)", **floats({"w": np.ones(2)}))
    assert set(made(which)[0].feed) == {"x"}


@pytest.mark.parametrize(("text", "low", "high"), [("random:3:5", 3, 4), ("zeros", 0, 0), ("ones", 1, 1)])
def test_a_single_input_can_be_given_as_a_recipe(text: str, low: int, high: int) -> None:
    which = of("int64[B, 9] ids", "int64[B, 9] y", "y = Neg(ids)")
    ids = made(which, Settings(given={"ids": text}))[0].feed["ids"]
    assert low <= ids.min() <= ids.max() <= high


@pytest.mark.parametrize("text", ["random:3", "random:a:b", "twos", "missing.npy"])
def test_a_recipe_that_is_none_is_refused(text: str) -> None:
    which = of("int64[B, 9] ids", "int64[B, 9] y", "y = Neg(ids)")
    with pytest.raises(UsageError, match="--input ids="):
        made(which, Settings(given={"ids": text}))


def test_a_recipe_for_no_input_is_refused() -> None:
    with pytest.raises(UsageError, match="no such input"):
        made(of("float[1] x", "float[1] y", "y = Neg(x)"), Settings(given={"z": "ones"}))


def test_inputs_of_the_user_are_used_as_they_are() -> None:
    x = np.ones((3, 4), np.float32)
    found = made(of("float[B, 4] x", "float[B, 4] y", "y = Neg(x)"), Settings(inputs=({"x": x},)))
    assert [t.label for t in found] == ["given inputs 1"]
    assert found[0].feed["x"] is x


def test_inputs_of_the_user_that_do_not_fit_are_an_error() -> None:
    which = of("float[B, 4] x", "float[B, 4] y", "y = Neg(x)")
    with pytest.raises(CannotVerifyError, match="does not accept the given inputs 1"):
        made(which, Settings(inputs=({"x": np.ones((3, 5), np.float32)},)))


@pytest.mark.parametrize("size", [10**14, 10**30])
def test_sizes_beyond_the_memory_are_named(size: int) -> None:
    which = of("float[B, 4] x", "float[B, 4] y", "y = Neg(x)")
    with pytest.raises(CannotVerifyError, match=f"not enough memory.*B={size}"):
        made(which, Settings(dims={"B": size}))


def test_what_was_tried_is_named_where_nothing_is_accepted() -> None:
    which = of("float[N] x", "float[M, K] y", "s = Constant<value_ints=[9973, -1]>() y = Reshape(x, s)")
    with pytest.raises(
        CannotVerifyError, match=r"such as x \[\d+\] \(N=\d+\).*Input shape:\{\d+\}"
    ) as caught:
        made(which)
    assert "onnxruntime_src" not in str(caught.value)


@pytest.mark.parametrize("text", ["random:5:3", "random:0:inf", "random:0.2:0.7"])
def test_a_range_that_is_empty_is_refused(text: str) -> None:
    which = of("int64[B, 9] ids", "int64[B, 9] y", "y = Neg(ids)")
    with pytest.raises(UsageError, match="LOW must be less"):
        made(which, Settings(given={"ids": text}))
