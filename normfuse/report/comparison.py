"""Two models compared, for people: one row an output, and the conclusion in one line."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from normfuse.parity.verdict import ModelResult, ModelVerdict, OutputFigures
from normfuse.report.printing import print_indented, print_line
from normfuse.report.text import figure, plural, printable, seconds

OF_A_RUN: dict[ModelResult, tuple[str, str]] = {
    "equal": ("verified", "green"),
    "certified-by-site": ("each rewrite certified alone", "green"),
    "failed": ("differs", "bold red"),
    "inconclusive": ("inconclusive", "yellow"),
    "not-run": ("not verified", "yellow"),
}
"""What is said of a run, and in which style."""


def print_verdict(verdict: ModelVerdict, out: Console) -> None:
    """Two models compared: one row an output, then the conclusion."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title in ("output", "type", "absolute", "relative", "allowed", "ulp", "cosine", ""):
        table.add_column(title, overflow="fold")
    for output in verdict.outputs:
        mark = Text("agrees", style="green") if output.agrees else Text("differs", style="red")
        if not output.conclusive:
            mark = Text("says nothing", style="yellow")
        if output.detail:
            mark.append(f": {printable(output.detail)}", style="dim")
        table.add_row(
            printable(output.name),
            output.dtype,
            figure(output.max_absolute),
            figure(output.max_relative),
            figure(output.bound),
            f"{output.max_ulp:.3g}",
            f"{output.cosine:.6f}",
            mark,
        )
    if verdict.outputs:
        print_indented(out, table, 2)
        out.print()
    label, style = {"equal": ("agree", "green"), "failed": ("differ", "bold red")}.get(
        verdict.result, (verdict.result, "yellow")
    )
    print_line(out, label, style, verdict_line(verdict))
    for note in verdict.notes:
        print_line(out, "", "", printable(note), body="dim")
    if verdict.seconds:
        print_line(out, "time", "", f"{cost_line(verdict)}; seed {verdict.seed}", body="dim")


def verdict_line(verdict: ModelVerdict) -> str:
    """One line: where it was run, on how many inputs, and the worst output."""
    start = f"on {verdict.provider}"
    if verdict.inputs:
        start += f", {plural(len(verdict.inputs), 'input')}"
    worst = worst_output(verdict)
    if worst is not None:
        name = printable(worst.name)
        if worst.max_absolute == 0 and worst.agrees:
            start += ", every output the same bit for bit" if verdict.result == "equal" else ""
        else:
            start += (
                f"; worst: {name!r}, off by {figure(worst.max_relative)} relative, "
                f"{figure(worst.max_absolute)} absolute (allowed {figure(worst.bound)} relative)"
            )
    return f"{start}; {printable(verdict.detail)}" if verdict.detail else start


def cost_line(verdict: ModelVerdict) -> str:
    """What the verification took: "2.3 s, the cost of 3.9 plain runs"; "" where it was not timed."""
    if not verdict.seconds:
        return ""
    if not verdict.plain_run:
        return seconds(verdict.seconds)
    runs = verdict.seconds / verdict.plain_run
    count = f"{runs:.1f}" if runs < 100 else f"{runs:,.0f}"
    return f"{seconds(verdict.seconds)}, the cost of {count} plain runs of {seconds(verdict.plain_run)} each"


def worst_output(verdict: ModelVerdict) -> OutputFigures | None:
    """The output nearest to its bound, or furthest beyond it; one that disagrees comes first."""

    def badness(output: OutputFigures) -> tuple[bool, float]:
        ratio = output.max_relative / output.bound if output.bound > 0 else output.max_relative
        return not output.agrees, ratio if ratio == ratio else float("inf")

    return max(verdict.outputs, key=badness, default=None)
