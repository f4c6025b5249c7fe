"""What a run hands to the user: the summary, the report files, the step it is at."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normfuse.errors import UsageError
from normfuse.streams import writing

if TYPE_CHECKING:
    from normfuse.errors import NormfuseError
    from normfuse.report import Report
    from normfuse.report.fleet import Fleet


@dataclass(frozen=True)
class Reports:
    """The report files that are wanted. call: the command line, which they tell."""

    paths: tuple[Path, ...]
    call: str

    @staticmethod
    def of(paths: list[Path] | None, call: str) -> Reports:
        """What is wrong with a path is found out now, not after minutes of work."""
        if paths:
            from normfuse.report.write import check_path

            for path in paths:
                check_path(path)
        return Reports(tuple(paths or ()), call)

    @property
    def illustrated(self) -> bool:
        """Whether one of them is for people."""
        if not self.paths:
            return False
        from normfuse.report.write import FOR_PEOPLE

        return any(path.suffix.lower() == FOR_PEOPLE for path in self.paths)

    def write(self, found: Report | Fleet) -> None:
        """Write all of them."""
        if self.paths:
            from normfuse.report.write import called, write_report

            for path in self.paths:
                write_report(called(found, self.call), path)

    def write_failure(self, model: str, error: NormfuseError) -> None:
        """Write all of them for a run that ended without a report, over those of an older one."""
        if self.paths and getattr(error, "report", None) is None:
            from normfuse.report.fleet import Fleet, Outcome

            with suppress(UsageError):  # the error itself says more
                self.write(Fleet((Outcome(model, None, str(error), error.hint, error.exit_code),)))


def hand_over(report: Report, files: Reports, quiet: bool, *, aside: bool = False) -> None:
    """Print the summary, and write the reports that are wanted.

    aside: on stderr, since stdout holds the model.
    """
    files.write(report)
    if not quiet:
        from normfuse.report.printing import console
        from normfuse.report.summary import print_files, print_summary

        with writing():
            print_summary(report, console(stderr=aside))
            print_files(files.paths, console(stderr=aside))


def print_json(data: Any) -> None:
    """Print JSON-ready data, for programs that read standard output."""
    from normfuse.report.json_report import to_json

    with writing():
        sys.stdout.write(to_json(data))


@contextmanager
def progress_shown(quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Shows the current step on a terminal; nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from normfuse.report.live import Live

    with Live() as live:
        yield live.step
