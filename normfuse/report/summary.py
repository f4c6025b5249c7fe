"""A run for people: what was found, what became of it and why, whether it holds, and where it is.

    model.onnx
      LayerNorm   25 fused    → LayerNormalization
      BatchNorm   43 folded   → Conv
      left as they are
        2 RMSNorm  eps-outside-sqrt  epsilon is added to the deviation, not to the variance
      verified      on cpu, 6 inputs; worst: 'logits', off by 3.1e-07 relative (allowed 1.0e-04)
      written       model.fused.onnx, 4.1 MB (was 4.2 MB)

Warnings come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from normfuse.norms.refusal import REASONS
from normfuse.parity.verdict import ModelVerdict, SiteVerdict
from normfuse.report.comparison import OF_A_RUN, cost_line, verdict_line
from normfuse.report.printing import (
    NOTHING_FOUND,
    STYLES,
    counted,
    print_head,
    print_indented,
    print_line,
    print_warnings,
)
from normfuse.report.record import DONE, Report, Site
from normfuse.report.text import few, figure, plural, printable, seconds, size
from normfuse.report.tuning import print_tuning

# Improved sites that are named.
MOST_IMPROVED = 3
# Operators of onnxruntime: those of its domain, and those that it knows at every opset.
_OF_ONNXRUNTIME = "com.microsoft."
_IN_EVERY_OPSET = ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")


def print_summary(report: Report, out: Console) -> None:
    """The whole run."""
    print_head(report, out)
    print_warnings(report, out)
    if report.sites:
        print_indented(out, _counts(report), 2)
    else:
        out.print(NOTHING_FOUND)
    _print_left(report, out)
    out.print()
    _print_parity(report, out)
    if report.tuning is not None:
        print_tuning(report.tuning, out)
    _print_written(report, out)
    _print_time(report, out)


def print_files(paths: Sequence[Path], out: Console) -> None:
    """Where the reports of the run lie."""
    if paths:
        print_line(out, "report", "", printable(", ".join(map(str, paths))))


def _counts(report: Report) -> Table:
    """One row a kind: how many of each status, and as what."""
    table = Table.grid(padding=(0, 3, 0, 0), pad_edge=True)
    for kind in dict.fromkeys(site.kind for site in report.sites):
        sites = [site for site in report.sites if site.kind == kind]
        operators = Counter(site.operator for site in sites if site.operator and site.status in DONE)
        made = ", ".join(
            f"{name}" if len(operators) == 1 else f"{count} {name}" for name, count in operators.items()
        )
        table.add_row(
            printable(kind), counted(sites), Text(f"→ {printable(made)}" if made else "", style="dim")
        )
    return table


def _groups(report: Report) -> dict[tuple[str, str], list[Site]]:
    """What was left, by kind and reason, the most frequent first."""
    groups: dict[tuple[str, str], list[Site]] = {}
    for site in report.sites:
        if site.status in ("left", "rolled-back"):
            groups.setdefault((site.kind, site.reason or site.status), []).append(site)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _print_left(report: Report, out: Console) -> None:
    groups = _groups(report)
    if not groups:
        return
    out.print()
    out.print(Text("  left as they are", style="bold"))
    for (kind, reason), sites in groups.items():
        style = STYLES[sites[0].status]
        counted = f"{len(sites):,} {printable(kind)}  "
        print_indented(out, Text.assemble(counted, (reason, style), f"  {REASONS.get(reason, '')}"), 4)
        print_indented(out, Text(few([site.anchor for site in sites]), style="dim"), 6)
        failed = [site.parity.detail for site in sites if site.status == "rolled-back" and site.parity]
        if failed:
            print_indented(out, Text(printable(failed[0]), style="dim"), 6)
    out.print(Text("    normfuse inspect MODEL says more about each", style="dim"))


def _print_parity(report: Report, out: Console) -> None:
    for verdict in report.verdicts or (report.parity,):
        _print_verdict(report, verdict, out)
    improved = [site for site in report.sites if site.parity and site.parity.result == "improved"]
    if improved:
        count = plural(len(improved), "site")
        print_line(out, "", "", f"{count} closer to the exact result than before:", body="dim")
    for site in improved[:MOST_IMPROVED]:
        print_line(out, "", "", f"  {printable(site.anchor)} {_distances(site.parity)}", body="dim")


def _distances(verdict: SiteVerdict | None) -> str:
    """How far both sides of a rewrite are from what float64 gives, and on which input."""
    if verdict is None:
        return ""
    return (
        f"is off by {figure(verdict.error_after)} from float64, and was by {figure(verdict.error_before)}"
        f" ({printable(verdict.detail)})"
    )


def _print_verdict(report: Report, verdict: ModelVerdict | None, out: Console) -> None:
    if verdict is None or verdict.result == "not-run":
        if report.changed:
            why = verdict.detail if verdict is not None else ""
            text = printable(why) or "nothing proves that the result computes the same"
            label, style = OF_A_RUN["not-run"]
            print_line(out, label, style, text)
        return
    label, style = OF_A_RUN[verdict.result]
    print_line(out, label, style, verdict_line(verdict))
    if verdict.seconds:
        print_line(out, "", "", f"it took {cost_line(verdict)}", body="dim")
    for note in verdict.notes:
        print_line(out, "", "", printable(note), body="dim")


def _print_written(report: Report, out: Console) -> None:
    if report.written is None:
        print_line(out, "not written", "", "no file was changed")
        return
    text = printable(report.written)
    if report.bytes_after:
        text += f", {size(report.bytes_after)}"
        if report.bytes_before:
            text += f" (was {size(report.bytes_before)})"
    print_line(
        out, "written", "green", text if report.changed else f"{text}; nothing to rewrite, so it is a copy"
    )
    if report.depends_on:
        names = few([Path(name).name for name in report.depends_on])
        print_line(out, "", "", f"it uses the weights in {names}: keep the files together", body="dim")
    note = _foreign_note(report)
    if note:
        print_line(out, "", "", note, body="dim")


def _foreign_note(report: Report) -> str:
    """Who knows the operators of the result, where the ONNX standard does not; "" where that is not known."""
    made = {site.operator for site in report.sites if site.status in DONE}
    unknown = [
        name
        for name in report.foreign
        if not (name.startswith(_OF_ONNXRUNTIME) or name in made or name in _IN_EVERY_OPSET)
    ]
    if unknown:
        return f"it has operators that are not of the ONNX standard: {few(unknown)}"
    if not report.foreign:
        return ""
    cure = "; --target onnx avoids them" if report.target != "onnx" and made & _local(report.foreign) else ""
    return f"it has operators that only onnxruntime knows{cure}"


def _local(names: Sequence[str]) -> set[str | None]:
    """Operators without their domain, as sites name them."""
    return {name.rpartition(".")[2] for name in names}


def _print_time(report: Report, out: Console) -> None:
    parts = {name: value for name, value in report.seconds.items() if name != "total"}
    total = report.seconds.get("total", sum(parts.values()))
    if not report.seconds:
        return
    detail = ", ".join(f"{name} {seconds(value)}" for name, value in parts.items())
    print_line(out, "time", "", f"{seconds(total)} ({detail})" if detail else seconds(total), body="dim")
