"""The report as JUnit XML, which every build server reads: a suite for each model, a test case for each site.

    passed    rewritten
    skipped   left, with its reason, or taken back
    failure   --check: there is something to rewrite; or the result does not compute the same
    error     the run did not come to an end, or nothing could be proved

So a file without failures and errors is one of a run that ended with 0 (`--strict` asks for more).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from normfuse.norms.refusal import REASONS
from normfuse.parity.verdict import ModelVerdict
from normfuse.report.comparison import verdict_line
from normfuse.report.fleet import Outcome
from normfuse.report.record import DONE, Report, Site
from normfuse.report.text import printable

_NAMES = ("skipped", "failure", "error")


def to_junit(outcomes: Sequence[Outcome]) -> str:
    """The whole document, for one model or several."""
    root = ET.Element("testsuites", name="normfuse")
    for number, outcome in enumerate(outcomes):
        root.append(_suite(outcome, number))
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(outcome: Outcome, number: int) -> ET.Element:
    suite = ET.Element("testsuite", name=printable(outcome.model), id=str(number))
    report = outcome.report
    if report is not None:
        suite.set("time", f"{sum(report.seconds.values()):.3f}")
        suite.append(_properties(report))
        for site in report.sites:
            suite.append(_site(site, report.outlook))
        if report.changed and not report.outlook:
            suite.extend(_parity(report, verdict) for verdict in report.verdicts or (report.parity,))
    if outcome.error:
        case = ET.SubElement(suite, "testcase", name="run", classname="normfuse")
        if not (report is not None and report.parity is not None and report.parity.result == "failed"):
            ET.SubElement(case, "error", message=printable(outcome.error), type=f"exit {outcome.exit_code}")
    cases = suite.findall("testcase")
    counts = {name: sum(case.find(name) is not None for case in cases) for name in _NAMES}
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
    return suite


def _properties(report: Report) -> ET.Element:
    properties = ET.Element("properties")
    named = {
        "target": report.target,
        "providers": ",".join(report.providers),
        "nodes_before": str(report.nodes_before),
        "nodes_after": str(report.nodes_after),
        "written": report.written or "",
    }
    for name, value in named.items():
        ET.SubElement(properties, "property", name=name, value=printable(value))
    return properties


def _site(site: Site, outlook: bool) -> ET.Element:
    case = ET.Element(
        "testcase", name=printable(f"{site.kind} {site.anchor}"), classname=printable(f"normfuse.{site.kind}")
    )
    if site.status not in DONE:
        sentence = REASONS.get(site.reason or "", site.status)
        detail = f" ({site.detail})" if site.detail else ""
        skipped = ET.SubElement(case, "skipped")
        skipped.text = printable(f"{site.reason or site.status}: {sentence}{detail}")
    elif outlook:
        failure = ET.SubElement(case, "failure", message=f"it can be {site.status}", type="can-be-fused")
        failure.text = printable(f"{site.spelling} can become {site.operator}")
    return case


def _parity(report: Report, verdict: ModelVerdict | None) -> ET.Element:
    where = verdict.provider if verdict is not None else ", ".join(report.providers)
    case = ET.Element("testcase", name=f"parity on {printable(where)}", classname="normfuse.parity")
    if verdict is None:
        ET.SubElement(case, "skipped").text = "nothing proves that the result computes the same"
    elif verdict.result == "failed":
        ET.SubElement(case, "failure", message=verdict_line(verdict), type="parity")
    elif not verdict.agrees:
        ET.SubElement(case, "error", message=verdict_line(verdict), type=verdict.result)
    return case
