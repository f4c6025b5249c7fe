"""The progress of a run on a terminal: one line on stderr, which vanishes at the end.

The API calls `step` with the name of each stage and knows nothing of terminals.
"""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from normfuse.report.text import printable


class Live:
    """Shows the current step and the time; shows nothing where stderr is not a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def step(self, name: str) -> None:
        """Show the name of the step that begins."""
        if self._task is None:
            self._task = self._bar.add_task(printable(name), total=None)
        else:
            self._bar.update(self._task, description=printable(name))

    def __enter__(self) -> Live:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
