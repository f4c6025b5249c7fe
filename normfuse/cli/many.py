"""`normfuse *.onnx -o out/`, `normfuse DIR --recursive --jobs 2`: several models, one summary, one report."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from normfuse.cli.results import progress_shown
from normfuse.cli.standard import STREAM
from normfuse.errors import ParityError, UsageError
from normfuse.streams import writing

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from normfuse.options import Options
    from normfuse.report.fleet import Fleet, Outcome

FOUND_SOMETHING = 5


@dataclass(frozen=True)
class Many:
    """How several models are run.

    out: the folder for the results, None for beside each model. jobs: processes at a time.
    dask: the address of a Dask scheduler, None for this machine.
    """

    models: tuple[Path, ...]
    out: Path | None
    recursive: bool = False
    jobs: int = 1
    dask: str | None = None


def is_many(models: list[Path]) -> bool:
    """Whether these are several models, or a folder that may hold several."""
    return len(models) > 1 or models[0].is_dir()


def run_many(many: Many, options: Options, *, check: bool, strict: bool, quiet: bool) -> tuple[Fleet, int]:
    """Run every model and print what became of it; returns the outcomes and the exit code."""
    from normfuse import fleet

    _refuse(many)
    jobs = fleet.jobs_of(many.models, many.out, recursive=many.recursive)
    task = fleet.inspect_all if check else fleet.optimize_all
    with ExitStack() as stack:
        executor = stack.enter_context(_executor(many, len(jobs)))
        report = stack.enter_context(_steps(len(jobs), quiet))
        found = task(jobs, options, executor, report)
    folders = [path for path in many.models if path.is_dir()]
    if many.out is not None and folders and not (check or options.dry_run):
        fleet.copy_companions(folders, many.out, found, recursive=many.recursive)
    _print(found, quiet)
    return found, _exit_code(found, check=check, strict=strict)


def _refuse(many: Many) -> None:
    if any(str(path) == STREAM for path in (*many.models, many.out)):
        raise UsageError("several models cannot share standard input or output", hint="-o names a folder")
    if many.out is not None and many.out.exists() and not many.out.is_dir():
        raise UsageError(f"{str(many.out)!r} is a file, and several models need a folder")
    if many.dask is not None and many.jobs > 1:
        raise UsageError("--dask has as many workers as its cluster, so it does not go with --jobs")


@contextmanager
def _executor(many: Many, count: int) -> Iterator[Executor | None]:
    if many.dask is not None:
        from normfuse.integrations.dask import cluster

        with cluster(many.dask) as executor:
            yield executor
    elif many.jobs > 1 and count > 1:
        from normfuse.fleet import processes

        with processes(min(many.jobs, count)) as pool:
            try:
                yield pool
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                from multiprocessing import active_children

                for process in active_children():
                    process.terminate()
                raise
    else:
        yield None


@contextmanager
def _steps(count: int, quiet: bool) -> Iterator[Callable[[Outcome], None] | None]:
    """Shows on a terminal how far it is."""
    with progress_shown(quiet) as step:
        if step is None:
            yield None
            return
        finished = itertools.count(1)
        step(f"{count} models")
        yield lambda outcome: step(f"{next(finished)} of {count} done: {outcome.model}")


def _print(found: Fleet, quiet: bool) -> None:
    from normfuse.report.fleet import print_failures, print_fleet
    from normfuse.report.printing import console

    with writing():
        if not quiet:
            print_fleet(found, console())
        print_failures(found, console(stderr=True))


def _exit_code(found: Fleet, *, check: bool, strict: bool) -> int:
    """The highest of those of all models."""
    if check and any(report.changed for report in found.reports):
        return FOUND_SOMETHING
    if found.exit_code:
        return found.exit_code
    taken_back = any(report.count("rolled-back") for report in found.reports)
    return ParityError.exit_code if strict and taken_back else 0
