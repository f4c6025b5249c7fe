"""Report files: the ending says which kind, and what cannot be written is found out first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import FULL, ILLUSTRATED, REPEAT

from normfuse.errors import UsageError
from normfuse.report.fleet import Fleet, Outcome
from normfuse.report.write import ENDINGS, called, check_path, write_report

FLEET = Fleet((Outcome("model.onnx", ILLUSTRATED), Outcome("b.onnx", error="no model", exit_code=3)))
BEGINS = {".json": "{\n", ".html": "<!DOCTYPE html>", ".xml": "<?xml", ".sarif": '{\n  "$schema"'}


@pytest.mark.parametrize("found", [FULL, FLEET], ids=["one", "several"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_says_which_report(tmp_path: Path, found: object, ending: str) -> None:
    path = tmp_path / f"r{ending.upper()}"
    write_report(found, path)  # type: ignore[arg-type]
    assert path.read_text("utf-8").startswith(BEGINS[ending])


@pytest.mark.parametrize("name", ["r.txt", "r", "r.json.gz", ".html"])
def test_another_ending_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"must end in \.json, \.html, \.xml or \.sarif"):
        check_path(tmp_path / name)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "r.json").mkdir()
    for path in (tmp_path / "no" / "r.xml", tmp_path / "r.json"):
        with pytest.raises(UsageError, match="cannot write the report"):
            check_path(path)


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / ("r" * 300 + ".json")
    with pytest.raises(UsageError, match=r"cannot write the report .*File name too long"):
        write_report(FULL, path)


def test_a_name_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    odd = replace(FULL, model="m\udcff.onnx", sites=(replace(FULL.sites[0], anchor="\ud800"),))
    for ending in ENDINGS:
        write_report(odd, tmp_path / f"r{ending}")
        assert (tmp_path / f"r{ending}").read_text("utf-8")


def test_the_command_line_is_told_in_every_report(tmp_path: Path) -> None:
    for found in (ILLUSTRATED, FLEET):
        told = called(found, "normfuse a b")
        write_report(told, tmp_path / "r.json")
        assert "normfuse a b" in (tmp_path / "r.json").read_text()
    assert called(FULL, "normfuse a b") == FULL
    assert ILLUSTRATED.repeat == REPEAT


def test_the_report_of_several_models_holds_each(tmp_path: Path) -> None:
    write_report(FLEET, tmp_path / "r.json")
    models = json.loads((tmp_path / "r.json").read_text())["models"]
    assert [m["exit_code"] for m in models] == [0, 3]
