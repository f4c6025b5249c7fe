"""Large sites on small inputs: only where the original does the same along the axes that are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_models import batch_norm_pair, floats, layer_norm, model

from normfuse.parity.check import check
from normfuse.parity.crop import MANY_BYTES, cropped, distinct, shrunk
from normfuse.parity.extract import extract
from normfuse.parity.model import Model
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.sides import Sides

RNG = np.random.default_rng(0)


def sides_of(body: str, x: np.ndarray, **weights: np.ndarray) -> Sides:
    rank = ", ".join("ABCD"[: x.ndim])
    proto = model(f"float[{rank}] x", f"float[{rank}] y", body, floats(weights))
    piece = extract(Model(Path("m"), proto), Boundary("", "x", "y"))
    return Sides.of(piece, piece, {"x": x}, Settings())


@pytest.mark.parametrize(
    ("axis", "shape", "small"),
    [
        (-1, (2, 300, 64), (2, 4, 64)),
        (1, (1, 32, 40, 40), (1, 32, 4, 4)),
        (-1, (4, 20, 20, 32), (4, 4, 4, 32)),
        (-1, (2, 7, 64), (2, 7, 64)),
    ],
)
def test_rows_and_pixels_are_cut_where_the_norm_does_not_reach(
    axis: int, shape: tuple[int, ...], small: tuple[int, ...]
) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    width = shape[axis]
    affine = np.ones((width, 1, 1)) if axis == 1 else np.ones(width)
    sides = sides_of(layer_norm("x", "y", 1e-5, "g", "b", axis), x, g=affine, b=affine)
    assert shrunk(sides, {"x": x}, ["x"])["x"].shape == small


def test_a_norm_over_all_axes_is_not_cut() -> None:
    x = RNG.normal(size=(2, 300, 64)).astype(np.float32)
    sides = sides_of("m = ReduceMean(x) y = Sub(x, m)", x)
    assert shrunk(sides, {"x": x}, ["x"])["x"].shape == x.shape


def test_an_image_is_cut_to_a_corner_unless_a_shape_is_fixed_inside() -> None:
    x = RNG.normal(size=(2, 3, 40, 40)).astype(np.float32)
    weights = RNG.normal(size=(4, 3, 3, 3))
    conv = sides_of("y = Conv<pads=[1, 1, 1, 1]>(x, w)", x, w=weights)
    assert cropped(conv, [("", {"x": x})])[0][1]["x"].shape == (1, 3, 7, 7)
    fixed = sides_of("c = Conv(x, w) y = Add(c, b)", x, w=weights, b=np.ones((38, 38)))
    assert cropped(fixed, [("", {"x": x})])[0][1]["x"].shape == x.shape


def test_one_recording_of_each_shape_is_enough_for_a_linear_operator() -> None:
    feeds = [("a", {"x": np.ones(3)}), ("b", {"x": np.zeros(3)}), ("c", {"x": np.ones(1)})]
    assert [label for label, _ in distinct(feeds)] == ["a", "c"]


WRONG = (
    *("eps x10", "wrong channel", "bias dropped", "bias on a wrong channel", "mean not scaled"),
    *("scale squared", "padding dropped"),
)


@pytest.mark.parametrize("how", ["", *WRONG])
def test_a_fold_into_many_weights_is_judged_on_a_small_corner_as_well_as_on_a_large_one(
    tmp_path: Path, how: str
) -> None:
    pair = batch_norm_pair(how, channels=2000, size="20, 20")
    assert pair.after.ByteSize() > MANY_BYTES
    parity = check(*pair.save(tmp_path), pair.sites, Settings(deployed=False))
    assert parity.sites["y"].result == ("failed" if how else "equal")
