"""Several models in one run: folders, collisions, failures that cost only their own, workers that die."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from normfuse import fleet
from normfuse.cli import run
from normfuse.errors import UsageError
from normfuse.fleet import Job, jobs_of
from normfuse.options import Options
from normfuse.report.fleet import Outcome

RMS = """<ir_version: 8, opset_import: ["": 17]>
rms (float[2,32] x) => (float[2,32] y) <float eps = {1e-5}>
{ s = Mul(x, x) m = ReduceMean<axes=[-1]>(s) v = Add(m, eps) r = Sqrt(v) y = Div(x, r) }"""
RELU = """<ir_version: 8, opset_import: ["": 17]>
relu (float[2,32] x) => (float[2,32] y) { y = Relu(x) }"""


def save(path: Path, text: str = RMS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(parser.parse_model(text), path)
    return path


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "in" / "a.onnx")
    save(tmp_path / "in" / "deep" / "b.onnx")
    save(tmp_path / "in" / "deep" / "b.fused.onnx")
    (tmp_path / "in" / "config.json").write_text("{}")
    (tmp_path / "in" / "deep" / "tokenizer.json").write_text("{}")
    return tmp_path / "in"


def test_a_folder_stands_for_its_models_and_not_for_earlier_results(folder: Path) -> None:
    assert jobs_of([folder], None) == [Job(folder / "a.onnx")]
    assert [job.model.name for job in jobs_of([folder], None, recursive=True)] == ["a.onnx", "b.onnx"]


def test_a_model_of_a_folder_keeps_its_place(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = [job.out for job in jobs_of([folder], out, recursive=True)]
    assert found == [out / "a.onnx", out / "deep" / "b.onnx"]


def test_a_result_folder_inside_the_source_is_no_source(folder: Path) -> None:
    save(folder / "out" / "a.onnx")
    found = [job.model for job in jobs_of([folder], folder / "out", recursive=True)]
    assert found == [folder / "a.onnx", folder / "deep" / "b.onnx"]


def test_a_model_that_is_named_twice_is_run_once(folder: Path) -> None:
    assert len(jobs_of([folder, folder / "a.onnx"], None)) == 1


def test_two_models_never_become_one_file(folder: Path, tmp_path: Path) -> None:
    other = save(folder / "deep" / "a.onnx")
    with pytest.raises(UsageError, match="would both become"):
        jobs_of([folder / "a.onnx", other], tmp_path / "out")


def test_a_folder_without_models_is_an_error_that_knows_of_deeper_ones(tmp_path: Path) -> None:
    save(tmp_path / "deep" / "a.onnx")
    with pytest.raises(UsageError, match=r"there is no \.onnx file") as error:
        jobs_of([tmp_path], None)
    assert "--recursive" in error.value.hint


def test_what_lies_beside_the_models_comes_along(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run([str(folder), "-o", str(out), "--recursive", "--quiet"]) == 0
    assert operators(out / "deep" / "b.onnx") != operators(folder / "deep" / "b.onnx")
    assert (out / "config.json").read_text() == "{}"
    assert (out / "deep" / "tokenizer.json").exists()
    assert not (out / "deep" / "b.fused.onnx").exists()


def test_weights_are_copied_by_their_model_and_by_no_one_else(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,32] x) => (float[2,32] y) <float[32,32] w>
    { y = MatMul(x, w) }"""
    model = parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((32, 32), np.float32), "w"))
    (tmp_path / "in").mkdir()
    onnx.save(
        model,
        tmp_path / "in" / "m.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    assert run([str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--quiet"]) == 0
    written = tmp_path / "out" / "m.onnx"
    onnx.load(written)  # with its weights
    data = [p for p in (tmp_path / "out").iterdir() if p != written]
    assert len(data) == 1


def test_the_weights_of_a_model_that_failed_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    save(folder / "a.onnx")
    (folder / "broken.onnx").write_bytes(b"no model")
    (folder / "broken.onnx.data").write_bytes(b"its weights")
    assert run([str(folder), "-o", str(tmp_path / "out"), "--quiet"]) == 3
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.onnx"]


def test_one_broken_model_does_not_stop_the_others(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.onnx").write_bytes(b"no model")
    report = tmp_path / "r.json"
    assert run([str(folder), "-o", str(tmp_path / "out"), "--report", str(report)]) == 3
    said = capsys.readouterr()
    assert "2 models: 1 done, 1 failed" in said.out
    assert "broken.onnx: not an ONNX model" in said.err
    models = json.loads(report.read_text())["models"]
    assert [m["exit_code"] for m in models] == [0, 3]
    assert models[0]["report"]["sites"][0]["status"] == "fused"
    assert (tmp_path / "out" / "a.onnx").exists()


def test_check_counts_what_is_still_to_be_done(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.onnx").write_bytes(b"no model")
    assert run([str(folder), "--check"]) == 5
    assert "1 would be fused" in (said := capsys.readouterr().out)
    assert "2 models: 0 done, 1 with something to do, 1 failed" in said


def test_a_path_that_is_not_there_stops_before_anything_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    for line in (["inspct", str(folder / "a.onnx")], [str(folder / "a.onnx"), "inspect"]):
        assert run(line) == 2
        assert "did you mean the command: normfuse inspect" in capsys.readouterr().err
    assert run([str(folder / "a.onnx"), str(folder / "nothing.onnx")]) == 2
    assert "no such file or folder" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_check_finds_the_one_model_with_something_to_fuse(tmp_path: Path) -> None:
    plain = [save(tmp_path / "a.onnx", RELU), save(tmp_path / "b.onnx", RELU)]
    assert run([*map(str, plain), "--check", "--quiet"]) == 0
    assert run([*map(str, plain), str(save(tmp_path / "c.onnx")), "--check", "--quiet"]) == 5


def test_several_models_need_a_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("here already")
    assert run([str(folder), "-o", str(file)]) == 2
    assert "several models need a folder" in capsys.readouterr().err
    assert run([str(folder), "-o", "-"]) == 2
    assert run([str(folder / "a.onnx"), "-"]) == 2


def killed(job: Job, options: Options) -> Outcome:
    """A run in which native code crashes on one model."""
    if job.model.name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(str(job.model))


@pytest.mark.slow
def test_a_process_that_dies_costs_only_the_model_it_died_of() -> None:
    jobs = [Job(Path(name)) for name in ("a", "deadly", "b", "c")]
    with fleet.processes(2) as pool:
        found = fleet._all(killed, jobs, Options(), pool, lambda outcome: None)
    assert [outcome.exit_code for outcome in found.outcomes] == [0, 4, 0, 0]
    assert "died" in found.outcomes[1].error


@pytest.mark.slow
def test_two_processes_write_what_one_writes(folder: Path, tmp_path: Path) -> None:
    for jobs, out in (("1", "one"), ("2", "two")):
        assert run([str(folder), "-o", str(tmp_path / out), "--recursive", "--jobs", jobs, "--quiet"]) == 0
    for name in ("a.onnx", "deep/b.onnx"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_mistake_of_our_own_costs_only_its_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(fleet.api, "optimize", broken)
    found = fleet.optimize_all([Job(tmp_path / "a.onnx")])
    assert "ZeroDivisionError" in found.outcomes[0].error
    assert found.exit_code == 4
