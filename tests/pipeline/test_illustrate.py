"""A run for people: its sites are drawn, the model is timed, and the command line is told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import jsonschema
import onnx
import pytest
from onnx import parser

import normfuse
from normfuse.cli import run
from normfuse.options import Options
from normfuse.pipeline import timing
from normfuse.report import schema

SPELLED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,8] x) => (float[N,8] y) <float[8] s = {1,1,1,1,1,1,1,1}, float eps = {1e-5}> {
  m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes=[-1]>(q)
  e = Add(v, eps) r = Sqrt(e) u = Div(d, r) y = Mul(u, s) }"""
NOTHING = """<ir_version: 8, opset_import: ["": 17]> g (float[N,8] x) => (float[N,8] y) { y = Relu(x) }"""


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SECONDS", 0.02)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(parser.parse_model(SPELLED), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_run_for_people_draws_and_times(model: Path) -> None:
    report = normfuse.optimize(model, options=Options(illustrated=True)).report
    assert [len(p.after) for p in report.pictures] == [2]
    assert report.sites[0].picture == 0
    assert report.latency is not None
    assert (report.latency.why_not, report.latency.without_norms is None) == ("", False)


def test_a_model_in_memory_is_drawn_and_timed_as_well() -> None:
    report = normfuse.optimize(parser.parse_model(SPELLED), options=Options(illustrated=True)).report
    assert report.pictures[0].before
    assert report.latency is not None
    assert report.latency.before > 0


def test_a_run_for_programs_does_neither(model: Path) -> None:
    report = normfuse.optimize(model).report
    assert (report.pictures, report.latency) == ((), None)


def test_nothing_is_timed_that_was_not_verified_or_not_changed(model: Path, tmp_path: Path) -> None:
    assert normfuse.optimize(model, options=Options(illustrated=True, verify=False)).report.latency is None
    onnx.save(parser.parse_model(NOTHING), tmp_path / "nothing.onnx")
    assert (
        normfuse.optimize(tmp_path / "nothing.onnx", options=Options(illustrated=True)).report.latency is None
    )


def test_an_inspection_shows_what_would_stand_there(model: Path) -> None:
    report = normfuse.inspect(model, Options(illustrated=True))
    assert report.outlook
    assert report.repeat is not None
    assert report.repeat.call.startswith("normfuse.inspect(")
    assert [box.label for box in report.pictures[0].after] == ["input", "LayerNormalization"]


def test_the_command_line_is_told_as_it_was_given(model: Path, tmp_path: Path) -> None:
    words = [str(model), "-q", "--dim", "N=3", "--report", str(tmp_path / "r.json"),
             "--report", str(tmp_path / "r r.html")]  # fmt: skip
    assert run(words) == 0
    data = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(data, schema())
    assert data["repeat"]["call"] == shlex.join(["normfuse", *words])
    assert data["repeat"]["dims"] == {"N": 3}
    assert data["pictures"]
    assert "LayerNorm → LayerNormalization" in (tmp_path / "r r.html").read_text("utf-8")
