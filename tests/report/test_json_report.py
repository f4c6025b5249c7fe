"""The report for programs: valid under its schema, and without what JSON does not know."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import jsonschema
import pytest
from report_samples import EMPTY, FULL, LOGITS, NOT_VERIFIED

from normfuse.errors import UsageError
from normfuse.parity.verdict import ModelVerdict, OutputFigures, SiteVerdict
from normfuse.report import Report, Site, schema, write_json
from normfuse.report.json_report import to_json


@pytest.mark.parametrize("report", [FULL, EMPTY, NOT_VERIFIED], ids=["full", "empty", "not-verified"])
def test_a_report_is_valid_under_its_schema(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(to_json(report.to_dict())), schema())


def test_a_wrong_report_is_not() -> None:
    data = json.loads(to_json(FULL.to_dict()))
    data["sites"][0]["status"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


@pytest.mark.parametrize(
    ("record", "definition"),
    [
        (Site, "site"),
        (SiteVerdict, "site_verdict"),
        (ModelVerdict, "model_verdict"),
        (OutputFigures, "output"),
    ],
)
def test_the_schema_describes_every_field(record: type, definition: str) -> None:
    described = schema()["$defs"][definition]
    assert (
        set(described["properties"]) == {field.name for field in fields(record)} == set(described["required"])
    )


def test_the_schema_describes_the_report() -> None:
    names = {"schema_version", *(field.name for field in fields(Report))}
    assert set(schema()["properties"]) == names == set(schema()["required"])


def test_values_that_json_does_not_know_are_words() -> None:
    odd = replace(LOGITS, max_absolute=float("nan"), max_relative=float("inf"), bound=float("-inf"))
    report = replace(FULL, parity=replace(FULL.parity, outputs=(odd,)))
    data = json.loads(to_json(report.to_dict()))
    output = data["parity"]["outputs"][0]
    assert [output[k] for k in ("max_absolute", "max_relative", "bound")] == ["NaN", "Infinity", "-Infinity"]
    jsonschema.validate(data, schema())


def test_the_version_comes_first_and_names_are_plain_ascii(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_json(replace(FULL, model="modèle\n.onnx"), path)
    text = path.read_bytes().decode("ascii")
    assert text.startswith('{\n  "schema_version": 1')
    assert json.loads(text)["model"] == "modèle\n.onnx"


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write the report"):
        write_json(FULL, tmp_path / "no" / "r.json")
