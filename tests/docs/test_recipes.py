"""Folders of other tools come out complete: the model fused, everything else as it was."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from blocks import blocks
from stock import fill

import normfuse
from normfuse.cli.entry import run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".json"}


@pytest.mark.parametrize("name", ["bert", "llm"])
def test_a_folder_keeps_its_configuration_and_its_names(name: str, here: Path) -> None:
    before = {path.name: path.read_bytes() for path in (here / name).iterdir()}
    assert run([name, "-o", "out", "--no-verify"]) == 0
    assert {path.name for path in (here / "out").iterdir()} == set(before)
    assert files(here / "out") == files(here / name)
    fused = [node.op_type for node in onnx.load(here / "out" / "model.onnx").graph.node]
    assert fused.count("LayerNormalization") == 5
    assert {path.name: path.read_bytes() for path in (here / name).iterdir()} == before


def test_the_weights_of_a_folder_go_along(here: Path) -> None:
    assert run(["llm", "-o", "out", "--no-verify"]) == 0
    for path in (here / "llm").iterdir():
        path.unlink()
    assert onnx.load(here / "out" / "model.onnx").graph.initializer[0].raw_data


def test_the_plan_on_the_page_is_taken(here: Path) -> None:
    (plan,) = (b for b in blocks("json") if b.name.startswith("bench.md") and '"sites"' in b.text)
    (here / "plan.json").write_text(plan.text)
    report = normfuse.inspect("model.onnx", normfuse.Options(plan=Path("plan.json")))
    assert {site.output: site.status for site in report.sites}["last_hidden_state"] == "left"
