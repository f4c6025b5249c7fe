"""Made inputs: roles of integers, seeds, masks, images that a model refuses, what users give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_models import floats, model

from normfuse.errors import CannotVerifyError, UsageError
from normfuse.parity import Settings
from normfuse.parity.inputs import Trial, trials
from normfuse.parity.model import Model, serialize
from normfuse.parity.roles import role_of
from normfuse.parity.sessions import Session

I64, I32, BOOL = np.dtype(np.int64), np.dtype(np.int32), np.dtype(bool)
TABLE = floats({"t": np.zeros((30, 4))})


def of(*text: str, **constants: np.ndarray) -> Model:
    return Model(Path("m.onnx"), model(*text, constants={**constants}))


def made(which: Model, settings: Settings | None = None) -> list[Trial]:
    settings = settings or Settings()
    return trials(which, Session(serialize(which.proto), settings), settings)[0]


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
    assert {trial.feed["key"].shape[1] for trial in made(which)} == {0, 3}


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
