"""Every candidate of a model, for people: what it is, what would become of it or why not, and what to do."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from normfuse.norms.refusal import REASONS
from normfuse.report.advice import ADVICE
from normfuse.report.printing import NOTHING_FOUND, STYLES, print_head, print_indented, print_warnings
from normfuse.report.record import Report, Site, Status
from normfuse.report.text import printable

OUTLOOK: dict[Status, str] = {
    "fused": "would be fused",
    "folded": "would be folded",
    "guarded": "would be guarded",
}


def print_inspection(report: Report, out: Console) -> None:
    """Every candidate, what it is, what would become of it or why not, and what to do."""
    print_head(report, out)
    print_warnings(report, out)
    if not report.sites:
        out.print(NOTHING_FOUND)
        return
    print_indented(out, _candidates(report), 2)
    reasons = dict.fromkeys(
        reason for site in report.sites for reason in (site.reason, site.outside) if reason is not None
    )
    if reasons:
        out.print()
        out.print(Text("  why, and what to do", style="bold"))
    for reason in reasons:
        print_indented(out, Text.assemble((reason, "yellow"), f"  {REASONS.get(reason, '')}"), 4)
        if reason in ADVICE:
            print_indented(out, Text(ADVICE[reason], style="dim"), 6)
    out.print()
    print_outlook(report, out)


def print_outlook(report: Report, out: Console) -> None:
    """One line: what a run would do."""
    words = [f"{report.count(status):,} {would}" for status, would in OUTLOOK.items() if report.count(status)]
    if report.count("left"):
        words.append(f"{report.count('left'):,} left")
    out.print(f"  {', '.join(words) if words else 'nothing to do'}")


def _candidates(report: Report) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title in ("kind", "node", "verdict", "found as"):
        table.add_column(title, overflow="fold")
    for site in report.sites:
        table.add_row(
            printable(site.kind),
            printable(site.anchor),
            _with_detail(site),
            Text(printable(site.spelling), style="dim"),
        )
    return table


def verdict_of(site: Site) -> Text:
    """What would become of a site, or why not."""
    verdict = Text.assemble((OUTLOOK.get(site.status, site.status), STYLES[site.status]))
    if site.reason and site.reason != site.status:
        verdict.append(f": {site.reason}")
    elif site.operator:
        verdict.append(f" → {printable(site.operator)}", style="dim")
    if site.outside:
        verdict.append(f", outside it: {site.outside}", style="dim")
    return verdict


def _with_detail(site: Site) -> Text:
    verdict = verdict_of(site)
    if site.detail:
        verdict.append(f"\n{printable(site.detail)}", style="dim")
    return verdict
