"""What all printed pages share: the console, colours, the head of a page, a labelled line.

Colours only on a terminal and not under NO_COLOR; nothing is wrapped where the output is not one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from normfuse.report.record import Report, Site, Status
from normfuse.report.text import plural, printable

STYLES: dict[Status, str] = {
    "fused": "green",
    "folded": "green",
    "guarded": "cyan",
    "left": "yellow",
    "rolled-back": "red",
}
NOTHING_FOUND = "  nothing found that is a normalization or folds into weights"
_PIPE_WIDTH = 10_000


class _Console(Console):
    """A console that says when its reader is gone, where rich would end the process with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """Where to print: names are never read as markup, and lines are not broken when piped."""
    out = _Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False)
    if not out.is_terminal:
        out.width = _PIPE_WIDTH
    return out


def counted(sites: Iterable[Site], words: Mapping[Status, str] | None = None) -> Text:
    """How many sites have each status: "5 fused, 2 left". words: what is said of one, where not its name."""
    said = words or {}
    statuses = Counter(site.status for site in sites)
    return Text(", ").join(
        Text(f"{statuses[status]:,} {said.get(status, status)}", style=style)
        for status, style in STYLES.items()
        if statuses[status]
    )


def print_head(report: Report, out: Console) -> None:
    """Which model, for which target, how large."""
    out.print(Text(printable(report.model), style="bold"))
    nodes = plural(report.nodes_before, "node")
    if report.nodes_after != report.nodes_before:
        nodes = f"{report.nodes_before:,} → {plural(report.nodes_after, 'node')}"
    opset = f"opset {report.opset_before}"
    if report.opset_after != report.opset_before:
        opset = f"opset {report.opset_before} → {report.opset_after}"
    out.print(Text(f"  target {report.target}, {opset}, {nodes}", style="dim"))


def print_warnings(report: Report, out: Console) -> None:
    """What the user should know before anything else."""
    for warning in report.warnings:
        out.print(Text.assemble(("  warning: ", "bold yellow"), printable(warning)))


def print_line(out: Console, label: str, style: str, text: str, body: str = "") -> None:
    """A label and what it says; long lines stay in their column."""
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(min_width=13)
    row.add_column(overflow="fold")
    row.add_row(Text(label, style=style), Text(text, style=body))
    print_indented(out, row, 2)


def print_indented(out: Console, what: RenderableType, columns: int) -> None:
    """Something that stays in its column, also where it is wrapped."""
    out.print(Padding(what, (0, 0, 0, columns), expand=False))
