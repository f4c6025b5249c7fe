"""A wrong rewrite never passes: right replacements hold, and each way of getting one wrong is caught."""

from __future__ import annotations

from pathlib import Path

import pytest
from parity_models import batch_norm_pair, stack

from normfuse.parity.check import check
from normfuse.parity.settings import Settings

LAYER_NORM = (
    "eps x10",
    "eps x0.1",
    "wrong axis",
    "gamma shifted",
    "gamma negated",
    "one gamma wrong",
    "beta shifted",
    "beta negated",
    "rms instead",
    "no bias",
    "no gamma",
    "other input",
    "half inside",
    "not centred after",
)
RMS_NORM = (
    "eps x10",
    "eps x0.1",
    "gamma shifted",
    "gamma negated",
    "layer norm instead",
    "bias added",
    "sum instead of mean",
)
BATCH_NORM = (
    "eps x10",
    "eps dropped",
    "wrong channel",
    "bias dropped",
    "bias on a wrong channel",
    "mean not scaled",
    "scale squared",
    "padding dropped",
)
# What the whole model is run at beside the sites does not matter here.
QUICK = Settings(deployed=False)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-5, 1e-12])
def test_right_replacements_hold(tmp_path: Path, epsilon: float) -> None:
    pair = stack(6, epsilon=epsilon)
    parity = check(*pair.save(tmp_path), pair.sites, QUICK)
    assert parity.model.result == "equal"
    assert {site.result for site in parity.sites.values()} == {"equal"}
    assert parity.guilty == ()


@pytest.mark.parametrize("how", LAYER_NORM)
def test_a_wrong_layer_norm_is_caught_and_no_other(tmp_path: Path, how: str) -> None:
    pair = stack(4, broken=2, how=how)
    parity = check(*pair.save(tmp_path), pair.sites, QUICK)
    assert parity.guilty == ("y2",)
    assert parity.sites["y2"].result == "failed"


@pytest.mark.parametrize("how", RMS_NORM)
def test_a_wrong_rms_norm_is_caught_and_no_other(tmp_path: Path, how: str) -> None:
    pair = stack(4, broken=1, how=how)
    parity = check(*pair.save(tmp_path), pair.sites, QUICK)
    assert parity.guilty == ("y1",)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-12])
@pytest.mark.parametrize("how", ["eps x10", "eps x0.1"])
def test_a_wrong_epsilon_is_caught_whatever_its_size(tmp_path: Path, how: str, epsilon: float) -> None:
    pair = stack(2, broken=0, how=how, epsilon=epsilon)
    parity = check(*pair.save(tmp_path), pair.sites, QUICK)
    assert parity.guilty == ("y0",)
    assert parity.sites["y0"].error_after > 0.1


def test_the_right_fold_holds(tmp_path: Path) -> None:
    pair = batch_norm_pair()
    parity = check(*pair.save(tmp_path), pair.sites, QUICK)
    assert (parity.model.result, parity.sites["y"].result, parity.guilty) == ("equal", "equal", ())


@pytest.mark.parametrize("how", BATCH_NORM)
def test_a_wrong_fold_is_caught(tmp_path: Path, how: str) -> None:
    pair = batch_norm_pair(how)
    assert check(*pair.save(tmp_path), pair.sites, QUICK).guilty == ("y",)


def test_of_twenty_sites_only_the_broken_one_is_taken_back(tmp_path: Path) -> None:
    pair = stack(20, broken=12, how="eps x10")
    parity = check(*pair.save(tmp_path), pair.sites, QUICK)
    assert parity.guilty == ("y12",)
    assert sum(site.result == "equal" for site in parity.sites.values()) == 19
