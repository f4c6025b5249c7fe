"""SARIF: valid under the schema of 2.1.0, with a rule for each reason, and stable from run to run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from report_samples import EMPTY, FULL, ILLUSTRATED, NOT_VERIFIED, VERDICT

from normfuse.norms.refusal import REASONS
from normfuse.report.fleet import Outcome
from normfuse.report.record import Report, Site
from normfuse.report.sarif import to_sarif

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0-rtm.5.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
OUTLOOK = replace(FULL, parity=None, outlook=True)
FAILED = replace(FULL, parity=replace(VERDICT, result="failed", detail="NaN"))
BROKEN = Outcome("b.onnx", error="b.onnx is no ONNX model", exit_code=3)


def run_of(*found: Report | Outcome) -> Any:
    document = json.loads(to_sarif([f if isinstance(f, Outcome) else Outcome(f.model, f) for f in found]))
    VALIDATOR.validate(document)
    return document["runs"][0]


def levels(run: Any) -> dict[str, str]:
    return {f"{r['ruleId']} {r['message']['text'].split(' ')[-1]}": r["level"] for r in run["results"]}


@pytest.mark.parametrize("found", [FULL, EMPTY, ILLUSTRATED, NOT_VERIFIED, OUTLOOK, FAILED, BROKEN])
def test_it_is_valid(found: Report | Outcome) -> None:
    run_of(found)


def test_a_document_that_is_not_valid_is_noticed() -> None:
    document = json.loads(to_sarif([Outcome("m", FULL)]))
    document["runs"][0]["results"][0]["level"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(document)


def test_what_stays_is_a_note_and_what_was_taken_back_a_warning() -> None:
    assert levels(run_of(FULL)) == {
        "eps-outside-sqrt rms1)": "note",
        "eps-outside-sqrt rms2)": "note",
        "rolled-back ln3)": "warning",
    }


def test_what_check_finds_is_a_warning() -> None:
    found = levels(run_of(OUTLOOK))
    assert found["can-be-fused ln1/Div)"] == "warning"
    assert sum(rule.startswith("can-be-fused") for rule in found) == 4


def test_a_result_that_differs_is_an_error() -> None:
    (result,) = [r for r in run_of(FAILED)["results"] if r["ruleId"] == "parity"]
    assert result["level"] == "error"
    assert "NaN" in result["message"]["text"]


def test_every_result_has_its_rule_and_every_reason_makes_one() -> None:
    sites = tuple(Site("LayerNorm", "left", code, code, reason=code) for code in REASONS)
    run = run_of(replace(FULL, sites=sites))
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(REASONS)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert all(rule["help"]["markdown"].startswith("# ") for rule in rules)


def test_a_run_that_did_not_end_says_so() -> None:
    (invocation,) = run_of(EMPTY, BROKEN)["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["exitCode"] == 3
    assert "b.onnx is no ONNX model" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_the_command_line_is_told() -> None:
    assert run_of(ILLUSTRATED)["invocations"][0]["commandLine"] == "normfuse model.onnx --report r.html"


def test_fingerprints_tell_sites_apart_and_last() -> None:
    def prints(report: Report) -> list[str]:
        return [result["partialFingerprints"]["site/v1"] for result in run_of(report)["results"]]

    assert len(set(prints(FULL))) == 3
    later = replace(FULL, sites=tuple(reversed(FULL.sites)), seconds={"read": 9.0})
    assert sorted(prints(later)) == sorted(prints(FULL))


@pytest.mark.parametrize(
    ("model", "uri"),
    [
        ("models/m.onnx", "models/m.onnx"),
        ("a b/ü%.onnx", "a%20b/%C3%BC%25.onnx"),
        ("/models/a b.onnx", "file:///models/a%20b.onnx"),
        ("bad\ud800\n.onnx", "bad%3F%0A.onnx"),
    ],
)
def test_paths_are_addresses(model: str, uri: str) -> None:
    run = run_of(replace(FULL, model=model))
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"] == uri
