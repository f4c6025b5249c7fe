"""The report for programs: valid under its schema, and without what JSON does not know."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import get_args

import jsonschema
import pytest
from report_samples import EMPTY, FULL, ILLUSTRATED, LOGITS, NOT_VERIFIED

from normfuse.norms.refusal import REASONS
from normfuse.parity.verdict import ModelVerdict, OutputFigures, SiteVerdict
from normfuse.report import Report, Site, fleet_schema, schema
from normfuse.report.fleet import Fleet, Outcome
from normfuse.report.json_report import to_json
from normfuse.report.picture import Box, Picture
from normfuse.report.record import Latency, Repeat, Status


@pytest.mark.parametrize(
    "report", [FULL, EMPTY, NOT_VERIFIED, ILLUSTRATED], ids=["full", "empty", "not-verified", "illustrated"]
)
def test_a_report_is_valid_under_its_schema(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(to_json(report.to_dict())), schema())


def test_a_wrong_report_is_not() -> None:
    data = json.loads(to_json(FULL.to_dict()))
    data["sites"][0]["status"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


def test_every_status_and_every_reason_is_listed() -> None:
    definitions = schema()["$defs"]
    assert definitions["site"]["properties"]["status"]["enum"] == list(get_args(Status))
    assert definitions["reason"]["enum"] == [*REASONS, None]
    for field in ("reason", "outside"):
        assert definitions["site"]["properties"][field]["$ref"] == "#/$defs/reason"


@pytest.mark.parametrize(
    ("record", "definition"),
    [
        (Site, "site"),
        (SiteVerdict, "site_verdict"),
        (ModelVerdict, "model_verdict"),
        (OutputFigures, "output"),
        (Picture, "picture"),
        (Box, "box"),
        (Latency, "latency"),
        (Repeat, "repeat"),
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


def test_a_report_on_several_models_is_valid_under_its_schema() -> None:
    fleet = Fleet((Outcome("a", ILLUSTRATED), Outcome("b", error="no model", hint="give one", exit_code=3)))
    jsonschema.Draft202012Validator.check_schema(fleet_schema())
    data = json.loads(to_json(fleet.to_dict()))
    jsonschema.validate(data, fleet_schema())
    assert data["models"][0]["report"] == json.loads(to_json(ILLUSTRATED.to_dict()))
    data["models"][0]["report"]["sites"][0]["status"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, fleet_schema())


def test_values_that_json_does_not_know_are_words() -> None:
    odd = replace(LOGITS, max_absolute=float("nan"), max_relative=float("inf"), bound=float("-inf"))
    report = replace(FULL, parity=replace(FULL.parity, outputs=(odd,)))
    data = json.loads(to_json(report.to_dict()))
    output = data["parity"]["outputs"][0]
    assert [output[k] for k in ("max_absolute", "max_relative", "bound")] == ["NaN", "Infinity", "-Infinity"]
    jsonschema.validate(data, schema())


def test_the_version_comes_first_and_names_are_plain_ascii() -> None:
    text = to_json(replace(FULL, model="modèle\n.onnx").to_dict())
    assert text.isascii()
    assert text.startswith('{\n  "schema_version": 1')
    assert json.loads(text)["model"] == "modèle\n.onnx"
