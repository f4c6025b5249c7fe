"""What the HTML report shows of one model: words and drawings, ready for the template.

Long lists end at a bound, and say so: a page for people stays readable at thousands of sites, and the JSON
report has everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from normfuse.norms.refusal import REASONS
from normfuse.report.advice import ADVICE
from normfuse.report.comparison import verdict_line
from normfuse.report.drawing import svg
from normfuse.report.evidence import MOST_ROWS, View, latency_view, parity_view, standing
from normfuse.report.fleet import Outcome
from normfuse.report.inspection import OUTLOOK
from normfuse.report.page_text import page_html
from normfuse.report.record import DONE, Report, Site, Status
from normfuse.report.text import plural, printable, seconds, size

MOST_PICTURES, MOST_NAMES = 40, 100
_WORDS: dict[Status, str] = {
    "fused": "fused",
    "folded": "folded",
    "guarded": "guarded",
    "left": "left",
    "rolled-back": "taken back",
}
_FIRST: tuple[Status, ...] = ("rolled-back", *DONE, "left")


def view_of(outcome: Outcome, name: str) -> View:
    """Everything that the template shows of one model; name: what its places on the page begin with."""
    view = {
        "id": name,
        "name": printable(outcome.model),
        "error": printable(outcome.error),
        "hint": printable(outcome.hint),
        "complete": outcome.report is not None,
    }
    if outcome.report is None:
        return {**view, "verdict": {"word": "Failed", "tone": "bad"}}
    return {**view, **_view(outcome.report, name)}


def _view(report: Report, name: str) -> View:
    words = {**_WORDS, **OUTLOOK} if report.outlook else _WORDS
    groups = _groups(report.sites)
    drawn = [_group(group, report, words) for group in groups[:MOST_PICTURES]]
    return {
        "head": _head(report),
        "verdict": _verdict(report),
        "warnings": [printable(warning) for warning in report.warnings],
        "tiles": _tiles(report),
        "words": words,
        "counts": _counts(report.sites),
        "groups": drawn,
        "not_drawn": len(groups) - len(drawn),
        "latency": latency_view(report),
        "parity": parity_view(report, name),
        "rewritten": report.count(*DONE),
        "left": _left(report.sites),
        "left_count": report.count("left", "rolled-back"),
        "sites": [_row(site) for site in report.sites[:MOST_ROWS]],
        "site_count": len(report.sites),
        "call": printable(report.repeat.call) if report.repeat else "",
        "facts": _facts(report),
    }


def _head(report: Report) -> str:
    opset = f"opset {report.opset_before}"
    if report.opset_after != report.opset_before:
        opset += f" → {report.opset_after}"
    return f"target {report.target}, {', '.join(report.providers)}, {opset}"


def _verdict(report: Report) -> View:
    """The one thing to know: does the result hold?"""
    verdicts = [v for v in report.verdicts or (report.parity,) if v is not None]
    lines = [_capital(verdict_line(verdict)) for verdict in verdicts if verdict.result != "not-run"]
    notes = [printable(note) for verdict in verdicts for note in verdict.notes]
    word, tone = _conclusion(report)
    if report.written is not None:
        lines.append(f"Written to {printable(report.written)}")
    elif not report.outlook:
        lines.append("No model was written.")
    if not report.standard_onnx and report.foreign:
        shown = ", ".join(map(printable, report.foreign[:4]))
        lines.append(f"Its operators are not all of the ONNX standard: {shown}.")
    return {"word": word, "tone": tone, "lines": lines, "notes": notes}


def _conclusion(report: Report) -> tuple[str, str]:
    if report.outlook:
        found = report.count(*DONE)
        return (f"{plural(found, 'site')} to rewrite", "warn") if found else ("Nothing to do", "good")
    if not report.changed:
        return "Nothing to rewrite", "muted"
    if report.parity is None:
        return "Not verified", "warn"
    return {
        "equal": ("Verified: it computes the same", "good"),
        "certified-by-site": ("Each rewrite certified alone", "good"),
        "failed": ("It does not compute the same", "bad"),
        "inconclusive": ("Inconclusive", "warn"),
        "not-run": ("Not verified", "warn"),
    }[report.parity.result]


def _tiles(report: Report) -> list[View]:
    rewritten = report.count(*DONE)
    label = "sites can be rewritten" if report.outlook else "sites rewritten"
    tiles = [(f"{rewritten:,} of {len(report.sites):,}", label)]
    if report.nodes_after != report.nodes_before:
        tiles.append((f"{report.nodes_before:,} → {report.nodes_after:,}", "nodes"))
    else:
        tiles.append((f"{report.nodes_before:,}", "nodes"))
    if report.latency is not None and not report.latency.why_not:
        is_same = standing(report.latency) == "same"
        shown, how = (
            ("no difference", "in speed") if is_same else (f"{report.latency.faster:.2f} ×", "as fast")
        )
        tiles.append((shown, f"{how} on {report.latency.provider}"))
    if report.bytes_after:
        tiles.append((size(report.bytes_after), f"was {size(report.bytes_before)}"))
    return [{"figure": shown, "label": label} for shown, label in tiles]


def _counts(sites: Sequence[Site]) -> list[View]:
    rows = []
    for kind in dict.fromkeys(site.kind for site in sites):
        own = [site for site in sites if site.kind == kind]
        statuses = Counter(site.status for site in own)
        operators = dict.fromkeys(s.operator for s in own if s.operator and s.status in DONE)
        rows.append(
            {
                "kind": printable(kind),
                "statuses": [(status, statuses[status]) for status in _WORDS if statuses[status]],
                "operators": ", ".join(printable(name) for name in operators if name),
            }
        )
    return rows


def _groups(sites: Sequence[Site]) -> list[list[Site]]:
    """Sites that look the same and had the same done to them; what was taken back first, then by number."""
    groups: dict[tuple[Any, ...], list[Site]] = {}
    for site in sites:
        if site.picture is not None:
            key = (site.picture, site.kind, site.status, site.reason, site.outside)
            groups.setdefault(key, []).append(site)
    return sorted(groups.values(), key=lambda group: (_FIRST.index(group[0].status), -len(group)))


def _group(group: Sequence[Site], report: Report, words: dict[Status, str]) -> View:
    site = group[0]
    assert site.picture is not None
    picture = report.pictures[site.picture]
    became = f" → {site.operator}" if site.operator and site.status in DONE else ""
    verdict = words[site.status] + (f": {site.reason}" if site.reason not in (None, site.status) else "")
    title = printable(f"{site.kind}{became}")
    return {
        "title": title,
        "count": len(group),
        "status": site.status,
        "verdict": printable(verdict + (f", outside it: {site.outside}" if site.outside else "")),
        "before": svg(picture.before, f"{title}, before") if picture.before else "",
        "after": svg(picture.after, f"{title}, after", highlight=True) if picture.after else "",
        "nodes_before": sum(bool(box.operator) for box in picture.before),
        "nodes_after": sum(bool(box.operator) for box in picture.after),
        "names": [printable(s.anchor) for s in group[:MOST_NAMES]],
    }


def _left(sites: Sequence[Site]) -> list[View]:
    """What was left, and affines that stayed outside, by reason; the most frequent first."""
    by_reason: dict[str, list[Site]] = {}
    for site in sites:
        for reason in dict.fromkeys((site.reason, site.outside)):
            if reason is not None:
                by_reason.setdefault(reason, []).append(site)
    found = []
    for reason, own in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        outside = all(site.outside == reason for site in own)
        found.append(
            {
                "count": len(own),
                "kinds": ", ".join(printable(kind) for kind in dict.fromkeys(site.kind for site in own))
                + (" fused, its affine left outside" if outside else ""),
                "code": reason,
                "status": "left" if outside else own[0].status,
                "sentence": _capital(REASONS.get(reason, "")),
                "advice": ADVICE.get(reason, ""),
                "sites": [
                    {"anchor": printable(site.anchor), "detail": printable(site.detail)}
                    for site in own[:MOST_NAMES]
                ],
                "page": page_html(reason) if reason in REASONS else Markup(),
            }
        )
    return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _row(site: Site) -> View:
    return {
        "kind": printable(site.kind),
        "status": site.status,
        "reason": site.reason if site.reason != site.status else None,
        "anchor": printable(site.anchor),
        "spelling": printable(site.spelling),
        "operator": printable(site.operator or "") if site.status in DONE else "",
    }


def _facts(report: Report) -> list[tuple[str, str]]:
    facts = []
    if report.repeat is not None:
        facts = [
            ("seed", str(report.repeat.seed)),
            ("dims", ", ".join(f"{printable(k)}={v}" for k, v in report.repeat.dims.items())),
            ("versions", ", ".join(f"{k} {v}" for k, v in report.repeat.versions.items())),
            ("platform", report.repeat.platform),
        ]
    times = ", ".join(f"{name} {seconds(value)}" for name, value in report.seconds.items() if name != "total")
    facts += [("time", times), ("data", ", ".join(printable(name) for name in report.depends_on))]
    return [(name, value) for name, value in facts if value]
