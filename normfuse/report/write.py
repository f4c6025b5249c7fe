"""Report files: the ending of the name says which kind.

.json    for programs, all of it              .xml     JUnit, for build servers
.html    for people, one file                 .sarif   SARIF 2.1.0, for code scanning
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from normfuse.errors import UsageError
from normfuse.report.fleet import Fleet, Outcome
from normfuse.report.html import require, to_html
from normfuse.report.json_report import to_json
from normfuse.report.junit import to_junit
from normfuse.report.record import Report
from normfuse.report.sarif import to_sarif

Found = Report | Fleet
ENDINGS: dict[str, Callable[[Found], str]] = {
    ".json": lambda found: to_json(found.to_dict()),
    ".html": lambda found: to_html(_outcomes(found)),
    ".xml": lambda found: to_junit(_outcomes(found)),
    ".sarif": lambda found: to_sarif(_outcomes(found)),
}
FOR_PEOPLE = ".html"


def check_path(path: Path) -> None:
    """Raise UsageError where a report cannot be written: found out before minutes of work, not after."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        *most, last = ENDINGS
        raise UsageError(f"cannot write the report {str(path)!r}: it must end in {', '.join(most)} or {last}")
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        raise UsageError(f"cannot write the report {str(path)!r}: there is no folder {str(path.parent)!r}")
    if ending == FOR_PEOPLE:
        require()


def write_report(found: Found, path: Path) -> None:
    """Write one report file. Raises UsageError for an unknown ending, and where it cannot be written."""
    check_path(path)
    text = ENDINGS[path.suffix.lower()](found)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write the report {str(path)!r}: {error.strerror or error}") from error


def called(found: Found, call: str) -> Found:
    """What was found, with the command line that it was found by."""
    if isinstance(found, Fleet):
        return Fleet(tuple(_called(outcome, call) for outcome in found.outcomes))
    if found.repeat is None:
        return found
    return dataclasses.replace(found, repeat=dataclasses.replace(found.repeat, call=call))


def _called(outcome: Outcome, call: str) -> Outcome:
    if outcome.report is None:
        return outcome
    report = called(outcome.report, call)
    assert isinstance(report, Report)
    return dataclasses.replace(outcome, report=report)


def _outcomes(found: Found) -> Sequence[Outcome]:
    return found.outcomes if isinstance(found, Fleet) else (Outcome(found.model, found),)
