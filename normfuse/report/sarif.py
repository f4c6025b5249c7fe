"""The report as SARIF 2.1.0, which code scanning services read: one result for each site that stays.

    note      left, by its reason code, which is the rule
    warning   --check: it can be rewritten; a rewrite was taken back; a model in training mode
    error     the result does not compute the same, or could not be proved

A model is one binary artifact: a result names its node as a logical location, and the file as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from normfuse.norms.refusal import REASONS
from normfuse.report.advice import ADVICE
from normfuse.report.comparison import verdict_line
from normfuse.report.fleet import Outcome
from normfuse.report.reason_pages import page
from normfuse.report.record import DONE, Report, Site
from normfuse.report.text import printable

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
CAN_BE_FUSED, PARITY = "can-be-fused", "parity"
_OWN_RULES = {
    CAN_BE_FUSED: "the site can be rewritten: run normfuse on the model",
    PARITY: "the result must compute what the original computes",
}
_LEVELS = {
    CAN_BE_FUSED: "warning",
    PARITY: "error",
    "rolled-back": "warning",
    "training-mode": "warning",
}
Result = dict[str, Any]


def to_sarif(outcomes: Sequence[Outcome]) -> str:
    """The whole document, for one model or several."""
    from normfuse import __version__

    results = [result for outcome in outcomes for result in _results(outcome)]
    rules = list(dict.fromkeys(result["ruleId"] for result in results))
    for result in results:
        result["ruleIndex"] = rules.index(result["ruleId"])
    driver = {"name": "normfuse", "version": __version__, "semanticVersion": __version__,
              "rules": [_rule(code) for code in rules]}  # fmt: skip
    run = {
        "tool": {"driver": driver},
        "invocations": [_invocation(outcomes)],
        "artifacts": [{"location": _artifact(outcome.model)} for outcome in outcomes],
        "results": results,
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _results(outcome: Outcome) -> Iterator[Result]:
    report = outcome.report
    if report is None:
        return
    for site in report.sites:
        yield from _of_site(report, site)
    for verdict in report.verdicts or (report.parity,):
        if verdict is not None and not verdict.agrees:
            yield _result(report.model, PARITY, verdict_line(verdict))


def _of_site(report: Report, site: Site) -> Iterator[Result]:
    if site.status not in DONE:
        yield _result(report.model, site.reason or site.status, _why(site), site)
    elif report.outlook:
        text = f"{site.kind}: {site.spelling} can become {site.operator}"
        yield _result(report.model, CAN_BE_FUSED, text, site)


def _why(site: Site) -> str:
    sentence = REASONS.get(site.reason or "", site.status)
    return f"{site.kind}: {sentence}" + (f" ({site.detail})" if site.detail else "")


def _result(model: str, rule: str, text: str, site: Site | None = None) -> Result:
    # Services place a result on a line; a model has none, and its first stands for the file.
    place: Result = {"physicalLocation": {"artifactLocation": _artifact(model), "region": {"startLine": 1}}}
    named = site.anchor if site is not None else ""
    if site is not None:
        place["logicalLocations"] = [
            {"name": printable(named), "fullyQualifiedName": printable(f"{model}/{named}"), "kind": "element"}
        ]
        text = f"{text} (node {named})"
    key = "\0".join((model, rule, named, site.output if site is not None else ""))
    return {
        "ruleId": rule,
        "level": _LEVELS.get(rule, "note"),
        "message": {"text": printable(text)},
        "locations": [place],
        "partialFingerprints": {"site/v1": hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()},
    }


def _rule(code: str) -> Result:
    sentence = _OWN_RULES.get(code) or REASONS.get(code, code)
    rule: Result = {
        "id": code,
        "shortDescription": {"text": sentence},
        "defaultConfiguration": {"level": _LEVELS.get(code, "note")},
    }
    if code in REASONS:
        advice = f". What to do: {ADVICE[code]}" if code in ADVICE else ""
        rule["help"] = {"text": f"{sentence}{advice}.", "markdown": page(code)}
    return rule


def _invocation(outcomes: Sequence[Outcome]) -> Result:
    """Whether the run came to its end, and what kept it from that."""
    failed = [
        {"level": "error", "message": {"text": printable(f"{outcome.model}: {outcome.error}")}}
        for outcome in outcomes
        if outcome.error
    ]
    code = max((outcome.exit_code for outcome in outcomes), default=0)
    invocation: Result = {"executionSuccessful": not failed, "exitCode": code}
    if failed:
        invocation["toolExecutionNotifications"] = failed
    calls = dict.fromkeys(o.report.repeat.call for o in outcomes if o.report and o.report.repeat)
    if len(calls) == 1:
        invocation["commandLine"] = printable(next(iter(calls)))
    return invocation


def _artifact(model: str) -> Result:
    path = Path(model)
    name = quote(path.as_posix(), safe="/:" if path.is_absolute() else "/", errors="replace")
    if not path.is_absolute():
        return {"uri": name}
    return {"uri": f"file://{name}" if name.startswith("/") else f"file:///{name}"}
