"""The ONNX project's own function bodies are fused again, or left with a reason; what they compute stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from expanded_bodies import FAMILIES, bodies, data_sets

import normfuse
from normfuse.norms.refusal import REASONS
from normfuse.report.record import Report, Site

KIND = {
    "test_layer_normalization": {"LayerNorm"},
    "test_rms_normalization": {"RMSNorm"},
    "test_group_normalization": {"LayerNorm", "GroupNorm", "InstanceNorm"},
    "test_mvn": {"BatchStatistics"},
}
QUICK = (
    "test_layer_normalization_3d_axis1_epsilon_expanded",
    "test_layer_normalization_4d_axis_negative_1_expanded_ver18",
    "test_rms_normalization_2d_axis0_expanded",
    "test_rms_normalization_4d_axis_negative_2_expanded",
    "test_group_normalization_epsilon_expanded",
    "test_mvn_expanded_ver18",
)


def family(name: str) -> str:
    return next(start for start in FAMILIES if name.startswith(start))


def of_the_family(report: Report, name: str) -> list[Site]:
    return [site for site in report.sites if site.kind in KIND[family(name)]]


def write(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(bodies()[name].model, path)
    return path


def each_body() -> list[object]:
    """All; most are slow together, as each is run for its parity."""
    return [pytest.param(n, id=n, marks=() if n in QUICK else (pytest.mark.slow,)) for n in sorted(bodies())]


def test_all_of_them_are_collected() -> None:
    names = sorted(bodies())

    assert {start: sum(name.startswith(start) for name in names) for start in FAMILIES} == FAMILIES
    assert set(QUICK) <= set(names)


@pytest.mark.parametrize("target", ["ort-cpu", "onnx"])
@pytest.mark.parametrize("name", each_body())
def test_a_body_is_fused_again_or_left_with_a_reason(name: str, target: str, tmp_path: Path) -> None:
    options = normfuse.Options(target=target)

    report = normfuse.optimize(write(name, tmp_path), tmp_path / "out.onnx", options).report

    sites = of_the_family(report, name)
    assert sites
    assert all(site.status == "fused" or site.reason in REASONS for site in sites)
    assert not report.count("rolled-back")


@pytest.mark.parametrize("name", each_body())
def test_a_body_computes_its_test_data(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    case = bodies()[name]

    normfuse.optimize(write(name, tmp_path), out)

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(out, options, providers=["CPUExecutionProvider"])
    for inputs, expected in data_sets(case):
        for result, wanted in zip(session.run(None, inputs), expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=case.rtol, atol=max(case.atol, 1e-6))


@pytest.mark.parametrize("name", [n for n in sorted(bodies()) if n.startswith(("test_rms", "test_group"))])
@pytest.mark.slow
def test_bodies_without_live_statistics_are_fused_again(name: str, tmp_path: Path) -> None:
    report = normfuse.inspect(write(name, tmp_path))

    assert [site.status for site in of_the_family(report, name)] == ["fused"]
