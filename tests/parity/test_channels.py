"""A fault in a channel that is small beside the others is found; a small channel by itself is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_models import Pair, floats, fused_layer_norm, layer_norm, model

from normfuse.parity.channels import channel_axes, samples, worst_channel
from normfuse.parity.check import check
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.verdict import SiteVerdict

U = 2.0**-24
RNG = np.random.default_rng(0)
GAMMA, BETA = 1 + RNG.normal(size=16) * 0.3, RNG.normal(size=16)
W, S, M = RNG.normal(size=(8, 3, 3, 3)) / 5, 1 + RNG.normal(size=8) * 0.3, RNG.normal(size=8)


def verdict(pair: Pair, folder: Path) -> SiteVerdict:
    return check(*pair.save(folder), pair.sites, Settings(deployed=False)).sites["y"]


def norm_with(scale: float, factor: float) -> Pair:
    """LayerNorm with one small gamma, which is another in the replacement."""
    gamma, beta = GAMMA.copy(), BETA.copy()
    gamma[3], beta[3] = scale, 0
    wrong = gamma.copy()
    wrong[3] *= factor
    ends = "float[B, S, 16] x", "float[B, S, 16] y"
    before = model(*ends, layer_norm("x", "y", 1e-5, "g", "b"), floats({"g": gamma, "b": beta}))
    fused = fused_layer_norm("x", "y", 1e-5, "g", "b", "")
    after = model(*ends, fused, floats({"g": wrong, "b": beta}))
    return Pair(before, after, [Boundary("LayerNorm", "x", "y")])


def fold_with(scale: float, factor: float, bias: float = 0.0) -> Pair:
    """A Conv with one small channel; bias: where it is a difference, of two numbers as large as this."""
    s, m, b = S.copy(), M.copy(), np.ones(8)
    s[3], m[3], b[3] = scale, bias, bias * scale
    wrong = s.copy()
    wrong[3] *= factor
    ends = "float[N, 3, H, W] x", "float[N, 8, P, Q] y"
    body = "c = Conv<pads=[1, 1, 1, 1]>(x, w) y = BatchNormalization<epsilon=0.0>(c, s, b, m, v)"
    stored = floats({"w": W, "s": s, "b": b, "m": m, "v": np.ones(8)})
    given = {k: v.astype(np.float64) for k, v in stored.items()}
    folded = floats({"w": given["w"] * wrong[:, None, None, None], "b": given["b"] - given["m"] * given["s"]})
    after = model(*ends, "y = Conv<pads=[1, 1, 1, 1]>(x, w, b)", folded)
    return Pair(model(*ends, body, stored), after, [Boundary("BatchNorm", "x", "y")])


@pytest.mark.parametrize("scale", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("make", [norm_with, fold_with])
def test_a_small_channel_twice_as_large_fails(make: object, scale: float, tmp_path: Path) -> None:
    assert callable(make)
    assert verdict(make(scale, 2), tmp_path / "wrong").result == "failed"
    assert verdict(make(scale, 1), tmp_path / "right").result == "equal"


def test_the_channel_is_named(tmp_path: Path) -> None:
    assert "at index 3 of axis 2" in verdict(norm_with(1e-6, 2), tmp_path).detail


@pytest.mark.parametrize("bias", [1e3, 1e6])
def test_a_channel_that_is_left_of_two_large_numbers_is_no_fault(bias: float, tmp_path: Path) -> None:
    assert verdict(fold_with(1e-6, 1, bias), tmp_path).result in ("equal", "improved")


def test_each_channel_has_a_bound_of_its_own() -> None:
    truth = np.ones((4, 3)) * [1, 1e-6, 1]
    off = truth * [1, 1.01, 1 + U]
    found = worst_channel(truth, [truth * (1 + U)], off, U, 8, (1,))
    assert found is not None
    assert (found.axis, found.index) == (1, 1)
    assert found.error == pytest.approx(0.01)
    assert worst_channel(truth, [truth * (1 + U)], truth * (1 + 2 * U), U, 8, (1,)) is None
    assert worst_channel(truth, [truth * [1, 1.01, 1]], off, U, 8, (1,)) is None


def test_pixels_are_no_channels() -> None:
    assert channel_axes(4, spatial=True) == (1,)
    assert channel_axes(3, spatial=False) == (1, 2)
    assert channel_axes(1, spatial=False) == ()


def test_few_elements_are_few_samples() -> None:
    assert samples((2, 3, 8), (1, 2), 2) == 12
    assert samples((8,), (), 2) == 0
