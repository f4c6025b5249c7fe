"""The small models of models/build.py: they are what they say, and what can be fused in them is fused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from graphs import fused_norms, interface, operators, residue, run

import normfuse

MODELS = Path(__file__).parents[2] / "models"
FUSED = {"encoder": {"LayerNorm": 5, "RMSNorm": 0}, "encoder_block": {"LayerNorm": 2, "RMSNorm": 0}}
FUSED |= {"rmsnorm": {"LayerNorm": 0, "RMSNorm": 1}, "per_head_norm": {"LayerNorm": 0, "RMSNorm": 2}}
FUSED |= {"modulated_norm": {"LayerNorm": 1, "RMSNorm": 0}}
FOLDED = {"convnet": 5, "conv_bn": 2, "gemm_bn": 1}


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """models/build.py as a module; its neighbours are imported by their bare names."""
    sys.path.insert(0, str(MODELS))
    try:
        return importlib.import_module("build")
    finally:
        sys.path.remove(str(MODELS))


@pytest.fixture(scope="module")
def built(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """built(name): the path of one model, built anew."""
    folder = tmp_path_factory.mktemp("built")

    def make(name: str) -> Path:
        path = folder / f"{name}.onnx"
        onnx.save(build.MODELS[name](), path)
        return path

    return make


def optimize(path: Path, out: Path) -> normfuse.Report:
    """The report of one run, which must have been proven."""
    report = normfuse.optimize(path, out=out).report
    assert report.parity is not None
    assert report.parity.agrees, report.parity.detail
    assert interface(out) == interface(path)
    return report


@pytest.mark.parametrize("name", ["encoder", "convnet"])
def test_committed_models_are_small_and_are_what_the_script_builds(
    name: str, built: Callable[[str], Path]
) -> None:
    committed = MODELS / f"{name}.onnx"

    assert committed.stat().st_size < 100_000
    assert onnx.load(built(name)) == onnx.load(committed)


def test_every_model_is_valid_and_seeded(build: ModuleType) -> None:
    for make in build.MODELS.values():
        assert make() == make()


@pytest.mark.parametrize("name", FUSED)
def test_norms_are_fused(name: str, built: Callable[[str], Path], tmp_path: Path) -> None:
    optimize(built(name), tmp_path / "out.onnx")

    assert fused_norms(tmp_path / "out.onnx") == FUSED[name]
    assert residue(tmp_path / "out.onnx") == []


def test_every_spelling_of_a_layernorm_is_fused_into_the_same_node(
    build: ModuleType, built: Callable[[str], Path], tmp_path: Path
) -> None:
    for name in build.families.SPELLED:
        optimize(built(name), tmp_path / f"{name}.onnx")
        nodes = operators(tmp_path / f"{name}.onnx")
        assert nodes["LayerNormalization"] == 1, name
        assert set(nodes) <= {"LayerNormalization", "MatMul", "Constant"}, name


@pytest.mark.parametrize("name", FOLDED)
def test_batchnorms_are_folded(name: str, built: Callable[[str], Path], tmp_path: Path) -> None:
    report = optimize(built(name), tmp_path / "out.onnx")

    folded = [site for site in report.sites if site.kind == "BatchNorm" and site.status == "folded"]
    assert len(folded) == FOLDED[name]
    assert operators(tmp_path / "out.onnx")["BatchNormalization"] == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("channels_first", "LayerNorm"),
        ("eps_outside", "LayerNorm"),
        ("instance_norm", "InstanceNorm"),
        ("group_norm", "GroupNorm"),
    ],
)
def test_the_other_families_are_fused(
    name: str, kind: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    options = normfuse.Options(target="ort")  # one of them gains nothing on the CPU, and is left there
    report = normfuse.optimize(built(name), tmp_path / "out.onnx", options).report

    assert [site.status for site in report.sites if site.kind == kind] == ["fused"]
    assert residue(tmp_path / "out.onnx") == []


@pytest.mark.parametrize("name", ["l2_normalize", "response_norm"])
def test_a_family_without_an_exact_operator_is_named_and_left(
    name: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    report = normfuse.optimize(built(name), out=tmp_path / "out.onnx").report

    norms = [site for site in report.sites if site.kind in ("L2Norm", "GlobalResponseNorm")]
    assert [(site.status, site.reason) for site in norms] == [("left", "no-fused-operator")]
    assert residue(tmp_path / "out.onnx") == residue(built(name))


def test_a_second_run_changes_nothing(
    build: ModuleType, built: Callable[[str], Path], tmp_path: Path
) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    for name in build.MODELS:
        normfuse.optimize(built(name), out=first)
        report = normfuse.optimize(first, out=second).report
        assert not report.changed, name
        assert first.read_bytes() == second.read_bytes(), name


def test_every_spelling_computes_a_layernorm(build: ModuleType, built: Callable[[str], Path]) -> None:
    x = np.random.default_rng(0).normal(1, 2, (2, 3, 16)).astype(np.float32)
    for name in build.families.SPELLED:
        weights = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(built(name)).graph.initializer}
        hidden = x @ weights["hidden_weight"]
        centred = hidden - hidden.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        normed = unit * weights["normed_gamma"] + weights["normed_beta"]

        (y,) = run(built(name), {"x": x})

        np.testing.assert_allclose(y, normed @ weights["y_weight"], rtol=1e-4, atol=1e-5, err_msg=name)
