"""Latency for the report: three models side by side, or one sentence on why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import parser

from normfuse.parity.settings import Settings
from normfuse.pipeline import timing
from normfuse.pipeline.timing import latency
from normfuse.report.record import Site

SPELLED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[N,64] y) <float[64] s, float eps = {1e-5}> {
  m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes=[-1]>(q)
  e = Add(v, eps) r = Sqrt(e) u = Div(d, r) y = Relu(u) }"""
FUSED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[N,64] y) <float[1] one = {1}, int64[1] n = {64}> {
  s = Expand(one, n) u = LayerNormalization(x, s) y = Relu(u) }"""
SITES = (Site("LayerNorm", "fused", "u", "u", "x"),)


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for path, text in zip(
        paths, (SPELLED.replace(", float eps", " = {" + "1," * 63 + "1}, float eps"), FUSED), strict=True
    ):
        onnx.save(parser.parse_model(text), path)
    return paths


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SECONDS", 0.05)


def test_all_three_are_measured(models: tuple[Path, Path]) -> None:
    found = latency(*models, SITES, Settings("cpu", {"N": 5}))
    assert found.why_not == ""
    assert found.inputs == "x [5, 64]"
    assert min(found.before, found.after, found.without_norms or 0.0) > 0
    assert found.low <= found.faster <= found.high
    assert found.noise >= 1
    assert found.rounds > 0


def test_what_does_not_run_without_its_norms_has_no_limit(models: tuple[Path, Path]) -> None:
    wrong = (replace(SITES[0], input="nowhere"),)
    found = latency(*models, wrong, Settings("cpu"))
    assert found.without_norms is None
    assert found.after > 0


def test_weights_in_a_file_beside_it_are_found(models: tuple[Path, Path]) -> None:
    for path in models:
        model = onnx.load(path)
        onnx.save(model, path, save_as_external_data=True, location=f"{path.stem}.data", size_threshold=0)
    assert latency(*models, SITES, Settings("cpu")).without_norms is not None


def test_a_model_that_does_not_load_says_why(models: tuple[Path, Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    onnx.save(parser.parse_model(FUSED.replace("Relu", "Nonesuch")), bad)
    assert "Nonesuch" in latency(models[0], bad, SITES, Settings("cpu")).why_not
    assert "gpu9" in latency(*models, SITES, Settings("gpu9")).why_not


def test_a_large_or_slow_model_is_not_measured(
    models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "MOST_SECONDS", 0.0)
    assert "one run takes" in latency(*models, SITES, Settings("cpu")).why_not
    monkeypatch.setattr(timing, "MOST_BYTES", 10)
    assert "of weights" in latency(*models, SITES, Settings("cpu")).why_not
