"""Several models in one run: what became of each, as plain data and as one table.

encoder.onnx   12 fused            verified       out/encoder.onnx
decoder.onnx   24 fused, 1 left    verified       out/decoder.onnx
broken.onnx    error               broken.onnx is no ONNX model: …
3 models: 2 done, 1 failed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from normfuse.report.comparison import OF_A_RUN
from normfuse.report.inspection import OUTLOOK
from normfuse.report.printing import counted
from normfuse.report.record import SCHEMA_VERSION, Report
from normfuse.report.text import plural, printable


@dataclass(frozen=True)
class Outcome:
    """What became of one model of several.

    report: of the run, None where there was none.
    error, hint, exit_code: of what went wrong; empty and 0 where nothing did.
    """

    model: str
    report: Report | None = None
    error: str = ""
    hint: str = ""
    exit_code: int = 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {**asdict(self), "report": None if self.report is None else self.report.to_dict()}


@dataclass(frozen=True)
class Fleet:
    """All models of one run, in the order in which they were given."""

    outcomes: tuple[Outcome, ...]

    @property
    def exit_code(self) -> int:
        """0 where all went well, else the highest exit code of those that did not."""
        return max((outcome.exit_code for outcome in self.outcomes), default=0)

    @property
    def reports(self) -> tuple[Report, ...]:
        """The reports of the models that have one."""
        return tuple(outcome.report for outcome in self.outcomes if outcome.report is not None)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data, with `schema_version` first; each report has the schema of a single one."""
        return {"schema_version": SCHEMA_VERSION, "models": [outcome.to_dict() for outcome in self.outcomes]}


def print_fleet(fleet: Fleet, out: Console) -> None:
    """One row a model, and how many went well."""
    table = Table(box=None, padding=(0, 3, 0, 0), show_header=False, pad_edge=False)
    for outcome in fleet.outcomes:
        table.add_row(*_row(outcome))
    out.print(table)
    failed = sum(outcome.exit_code != 0 for outcome in fleet.outcomes)
    open_ = sum(report.outlook and report.changed for report in fleet.reports)
    words = [f"{len(fleet.outcomes) - failed - open_:,} done"]
    words += [f"{open_:,} with something to do"] if open_ else []
    words += [f"{failed:,} failed"] if failed else []
    out.print(f"{plural(len(fleet.outcomes), 'model')}: {', '.join(words)}")


def print_failures(fleet: Fleet, out: Console) -> None:
    """What went wrong with which model, a line each, and what to do on the next."""
    for outcome in fleet.outcomes:
        if outcome.error:
            said = outcome.error.removeprefix(f"{outcome.model}: ")
            out.print(Text(f"error: {printable(outcome.model)}: {printable(said)}"))
            if outcome.hint:
                out.print(Text(f"hint: {printable(outcome.hint)}"))


def _row(outcome: Outcome) -> Sequence[Text | str]:
    report = outcome.report
    name = printable(outcome.model)
    if report is None:
        return name, Text("error", style="bold red"), "", ""
    counts = counted(report.sites, OUTLOOK if report.outlook else None)
    parity = report.parity
    verdict = OF_A_RUN[parity.result][0] if parity is not None else ""
    failed = outcome.exit_code != 0
    return (
        name,
        counts if report.sites else Text("nothing to do", style="dim"),
        Text(verdict, style="bold red" if failed else "green"),
        printable(report.written or ""),
    )
