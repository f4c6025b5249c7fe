"""JUnit: valid for build servers, and red exactly where the run ends with an error."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import xmlschema
from report_samples import EMPTY, FULL, ILLUSTRATED, NOT_VERIFIED, VERDICT

from normfuse.norms.refusal import REASONS
from normfuse.report.fleet import Outcome
from normfuse.report.junit import to_junit
from normfuse.report.record import Report

SCHEMA = xmlschema.XMLSchema(Path(__file__).parent / "schemas" / "jenkins-junit.xsd")
EVIL = 'a"<b>&\x00\x1b\ud800\u202e]]>'
FAILED = replace(FULL, parity=replace(VERDICT, result="failed", detail="NaN"))
VAGUE = replace(FULL, parity=replace(VERDICT, result="inconclusive", detail="nothing finite"))
OUTLOOK = replace(FULL, parity=None, outlook=True)
BROKEN = Outcome("b.onnx", error="b.onnx is no ONNX model", exit_code=3)


def suites(*found: Report | Outcome) -> ET.Element:
    outcomes = [f if isinstance(f, Outcome) else Outcome(f.model, f) for f in found]
    text = to_junit(outcomes)
    SCHEMA.validate(text)
    return ET.fromstring(text)


def totals(root: ET.Element) -> tuple[int, int, int]:
    tests, failures, errors = (int(root.get(name, "")) for name in ("tests", "failures", "errors"))
    assert tests == len(root.findall(".//testcase"))
    assert failures == len(root.findall(".//failure"))
    assert errors == len(root.findall(".//error"))
    return tests, failures, errors


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (FULL, (8, 0, 0)),
        (EMPTY, (0, 0, 0)),
        (ILLUSTRATED, (8, 0, 0)),
        (NOT_VERIFIED, (8, 0, 0)),
        (FAILED, (8, 1, 0)),
        (VAGUE, (8, 0, 1)),
        (OUTLOOK, (7, 4, 0)),
        (BROKEN, (1, 0, 1)),
        (Outcome("m", FAILED, "it differs", exit_code=1), (9, 1, 0)),
        (replace(FULL, verdicts=(VERDICT, replace(VERDICT, provider="cuda", result="failed"))), (9, 1, 0)),
    ],
)
def test_it_is_valid_and_red_where_the_run_failed(
    found: Report | Outcome, expected: tuple[int, int, int]
) -> None:
    assert totals(suites(found)) == expected


def test_what_was_left_is_skipped_with_its_reason() -> None:
    case = suites(FULL).find(".//testcase[@name='RMSNorm rms1']")
    assert case is not None
    assert case.findtext("skipped") == (
        f"eps-outside-sqrt: {REASONS['eps-outside-sqrt']} (epsilon 1e-6 stands behind the root)"
    )


def test_what_check_finds_is_a_failure() -> None:
    case = suites(OUTLOOK).find(".//testcase[@name='LayerNorm ln2/Div']")
    assert case is not None
    assert case.findtext("failure") == "ReduceMean Sub Div can become LayerNormalization"


def test_every_model_has_a_suite() -> None:
    root = suites(FULL, BROKEN, EMPTY)
    assert [suite.get("name") for suite in root] == ["model.onnx", "b.onnx", "m.onnx"]
    assert totals(root) == (9, 0, 1)


def test_names_that_xml_cannot_hold_are_spelled_out() -> None:
    site = replace(FULL.sites[4], kind=EVIL, anchor=EVIL, detail=EVIL)
    root = suites(Outcome(EVIL, replace(FULL, sites=(site,), written=EVIL), EVIL, exit_code=1))
    assert r"\x00\x1b" in ET.tostring(root, "unicode")
