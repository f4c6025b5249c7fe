"""What a run hands to the user: the summary, the report files, the step it is at."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from normfuse.errors import UsageError
from normfuse.streams import writing

if TYPE_CHECKING:
    from normfuse.report import Report


def hand_over(report: Report, path: Path | None, quiet: bool, *, aside: bool = False) -> None:
    """Print the summary, and write the report where one is wanted.

    aside: on stderr, since stdout holds the model.
    """
    write_report(report, path)
    if not quiet:
        from normfuse.report.printing import console
        from normfuse.report.summary import print_summary

        with writing():
            print_summary(report, console(stderr=aside))


def check_report_path(path: Path | None) -> None:
    """Found out now, not after minutes of work."""
    if path is None:
        return
    if path.suffix.lower() != ".json":
        raise UsageError(f"cannot write the report {str(path)!r}: it must end in .json")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"cannot write the report {str(path)!r}: there is no folder {str(path.parent)!r}")


def write_report(report: Report, path: Path | None) -> None:
    if path is not None:
        from normfuse.report.json_report import write_json

        write_json(report, path)


@contextmanager
def progress_shown(quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Shows the current step on a terminal; nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from normfuse.report.live import Live

    with Live() as live:
        yield live.step
