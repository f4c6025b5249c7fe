"""rapidocr's detection, recognition and classification: Paddle exports at opsets 11 and 12.

Every weight is a Constant node, dimensions are called "?" or -1, and node names hold dots and at-signs.
Together 5 LayerNorms, 43 BatchNorms behind a Conv and one behind a ConvTranspose with an Add between.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import behind, fused_norms, interface, operators, run
from packaged import rapidocr

import normfuse

NAMES = ("det", "rec", "cls")
BATCH_NORMS = {"det": 3, "rec": 6, "cls": 35}
LAYER_NORMS = {"det": 0, "rec": 5, "cls": 0}
IMAGE = {"det": (64, 96), "rec": (48, 100), "cls": (48, 192)}


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> object:
    """optimized(name): the result's path and its report, made once."""
    folder = tmp_path_factory.mktemp("rapidocr")

    @cache
    def make(name: str) -> tuple[Path, normfuse.Report]:
        out = folder / f"{name}.onnx"
        return out, normfuse.optimize(rapidocr(name), out=out).report

    return make


pytestmark = pytest.mark.slow
each_model = pytest.mark.parametrize("name", NAMES)


@each_model
def test_the_models_hold_what_this_file_says(name: str) -> None:
    model = onnx.load(rapidocr(name))

    behind_conv = behind(model, "BatchNormalization", "Conv")
    behind_add = behind(model, "BatchNormalization", "Add")

    assert len(behind_conv) + len(behind_add) == BATCH_NORMS[name]
    assert len(behind_add) == (1 if name == "det" else 0)
    assert operators(rapidocr(name))["Sqrt"] == LAYER_NORMS[name]


@each_model
def test_every_batchnorm_is_folded(name: str, optimized) -> None:
    out, report = optimized(name)

    folded = [site for site in report.sites if site.kind == "BatchNorm" and site.status == "folded"]

    assert len(folded) == BATCH_NORMS[name]
    assert operators(out)["BatchNormalization"] == 0


@each_model
def test_every_layernorm_is_fused(name: str, optimized) -> None:
    out, report = optimized(name)

    fused = [site for site in report.sites if site.kind == "LayerNorm" and site.status == "fused"]

    assert len(fused) == LAYER_NORMS[name]
    assert fused_norms(out) == {"LayerNorm": LAYER_NORMS[name], "RMSNorm": 0}
    assert operators(out)["Sqrt"] == 0


@each_model
def test_nothing_is_left_of_a_norm_or_taken_back(name: str, optimized) -> None:
    _, report = optimized(name)

    assert [site for site in report.sites if site.status in ("left", "rolled-back")] == []


@each_model
def test_parity_holds_and_the_interface_survives(name: str, optimized) -> None:
    out, report = optimized(name)
    source = onnx.load(rapidocr(name))

    assert report.parity is not None
    assert report.parity.agrees, report.parity.detail
    assert interface(out) == interface(rapidocr(name))
    assert list(onnx.load(out).metadata_props) == list(source.metadata_props)


@each_model
def test_the_result_runs_at_the_default_level(name: str, optimized) -> None:
    out, _ = optimized(name)
    image = np.random.default_rng(0).uniform(-1, 1, (2, 3, *IMAGE[name])).astype(np.float32)

    for expected, result in zip(run(rapidocr(name), {"x": image}), run(out, {"x": image}), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


@each_model
def test_a_second_run_changes_nothing(name: str, optimized, tmp_path: Path) -> None:
    first, _ = optimized(name)

    report = normfuse.optimize(first, out=tmp_path / "second.onnx").report

    assert not report.changed
    assert (tmp_path / "second.onnx").read_bytes() == first.read_bytes()
