"""Several models in one run, in this process or through any `concurrent.futures` executor.

    folder/a/model.onnx, config.json   ->   out/a/model.onnx, config.json

Each model is a run of its own: one that fails does not stop the others. A worker process that dies (out of
memory, a crash in native code) costs only the model that it died of.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from normfuse import api
from normfuse.errors import CannotVerifyError, NormfuseError, UsageError
from normfuse.options import Options
from normfuse.report.fleet import Fleet, Outcome
from normfuse.report.record import Report

Done = Callable[[Outcome], None]


@dataclass(frozen=True)
class Job:
    """One model of several. out: where its result goes, None for beside the model (or in its place)."""

    model: Path
    out: Path | None = None


def jobs_of(paths: Sequence[Path], out: Path | None, *, recursive: bool = False) -> list[Job]:
    """The models that files and folders stand for; results of earlier runs (`*.fused.onnx`) are left out.

    out: a folder; a model of a folder keeps its place below it, and its name.
    Raises UsageError for a path that is not there, for a folder without models, and for two models that would
    become one file: a slip should not start a long run.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    jobs = [job for path in paths for job in _jobs_of(path, out, recursive)]
    if out is not None:
        _refuse_collisions(jobs)
    return list({job.model.resolve(): job for job in jobs}.values())


def _jobs_of(path: Path, out: Path | None, recursive: bool) -> Iterator[Job]:
    if not path.is_dir():
        yield Job(path, None if out is None else out / path.name)
        return
    results = out if out is not None and out.resolve() != path.resolve() else None
    found = sorted(p for p in path.glob("**/*.onnx" if recursive else "*.onnx") if _is_source(p, results))
    if not found:
        deeper = not recursive and next(path.glob("**/*.onnx"), None) is not None
        hint = "its folders hold some: --recursive" if deeper else ""
        raise UsageError(f"there is no .onnx file in {str(path)!r}", hint=hint)
    for model in found:
        yield Job(model, None if out is None else out / model.relative_to(path))


def _is_source(path: Path, out: Path | None) -> bool:
    is_result = path.name.endswith(api.SUFFIX) or (out is not None and _is_below(path, out))
    return path.is_file() and not is_result


def _is_below(path: Path, folder: Path) -> bool:
    return folder.resolve() in path.resolve().parents


def _refuse_collisions(jobs: Sequence[Job]) -> None:
    taken: dict[Path | None, Path] = {}
    for job in jobs:
        first = taken.setdefault(job.out, job.model)
        if first.resolve() != job.model.resolve():
            raise UsageError(f"{str(first)!r} and {str(job.model)!r} would both become {str(job.out)!r}",
                             hint="give the folder that holds both, with --recursive")  # fmt: skip


def optimize_all(
    jobs: Sequence[Job],
    options: Options | None = None,
    executor: Executor | None = None,
    done: Done | None = None,
) -> Fleet:
    """Optimize every model; `api.optimize` for each.

    executor: what the runs are submitted to; in this process, one after the other, without one. With a pool
        of processes that breaks, what it had not done is tried again, each model in a process of its own.
    done: called with each outcome as it is there.
    """
    return _all(optimize_one, jobs, options or Options(), executor, done or (lambda outcome: None))


def inspect_all(
    jobs: Sequence[Job],
    options: Options | None = None,
    executor: Executor | None = None,
    done: Done | None = None,
) -> Fleet:
    """Inspect every model; `api.inspect` for each, parameters as for `optimize_all`."""
    return _all(inspect_one, jobs, options or Options(), executor, done or (lambda outcome: None))


Task = Callable[[Job, Options], Outcome]


def _all(task: Task, jobs: Sequence[Job], options: Options, executor: Executor | None, done: Done) -> Fleet:
    outcomes: list[Outcome] = []
    futures = [] if executor is None else [executor.submit(task, job, options) for job in jobs]
    for k, job in enumerate(jobs):
        outcome = _awaited(futures[k], task, job, options) if futures else task(job, options)
        outcomes.append(outcome)
        done(outcome)
    return Fleet(tuple(outcomes))


def _awaited(future: Future[Outcome], task: Task, job: Job, options: Options) -> Outcome:
    try:
        return future.result()
    except BrokenExecutor:  # which of the models it was, a pool does not say
        return _alone(task, job, options)
    except Exception as error:  # of any executor: its worker cannot be reached, its scheduler is gone
        why = f"its worker failed: {error or type(error).__name__}"
        return Outcome(str(job.model), error=why, exit_code=CannotVerifyError.exit_code)


def _alone(task: Task, job: Job, options: Options) -> Outcome:
    """One model in a process of its own, which may die."""
    with processes(1) as executor:
        try:
            return executor.submit(task, job, options).result()
        except BrokenExecutor:
            return Outcome(
                str(job.model),
                error="the process that worked on it died",
                hint="it may need more memory than there is",
                exit_code=CannotVerifyError.exit_code,
            )


def processes(count: int) -> ProcessPoolExecutor:
    """A pool of worker processes; they start anew, since a fork of a process with threads can hang."""
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_leave_interrupts)


def _leave_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal; the one that started the others ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def optimize_one(job: Job, options: Options) -> Outcome:
    """One model of several; whatever goes wrong is in the outcome."""

    def run() -> Report:
        if job.out is not None and not options.dry_run:
            job.out.parent.mkdir(parents=True, exist_ok=True)
        return api.optimize(job.model, job.out, options).report

    return _outcome(job, run)


def inspect_one(job: Job, options: Options) -> Outcome:
    """One model of several, only looked at."""
    return _outcome(job, lambda: api.inspect(job.model, options))


def _outcome(job: Job, run: Callable[[], Report]) -> Outcome:
    name = str(job.model)
    try:
        return Outcome(name, run())
    except NormfuseError as error:
        report: Report | None = getattr(error, "report", None)
        return Outcome(name, report, str(error), error.hint, error.exit_code)
    except OSError as error:
        return Outcome(name, error=str(error), exit_code=UsageError.exit_code)
    except Exception as error:  # a mistake of normfuse's own must not cost the other models either
        hint = "a bug in normfuse: run it on this model alone, and report what it says"
        return Outcome(
            name, error=f"{type(error).__name__}: {error}", hint=hint, exit_code=CannotVerifyError.exit_code
        )


def copy_companions(folders: Sequence[Path], out: Path, fleet: Fleet, *, recursive: bool) -> None:
    """Copy what lies beside the models (configurations, tokenizers), so that the output folder is complete.

    Models, and the data files that they use, are written by their own runs and are not copied; nor is what is
    called like a model that failed before its data files were known. Files that are there already stay.
    """
    used = {Path(name).resolve() for report in fleet.reports for name in report.data_files}
    unread = tuple(str(Path(o.model).resolve()) for o in fleet.outcomes if o.report is None)
    for folder in folders:
        for path in folder.glob("**/*" if recursive else "*"):
            target = out / path.relative_to(folder)
            file = path.resolve()
            is_model = path.suffix == ".onnx" or file in used or str(file).startswith(unread)
            if path.is_file() and not (is_model or _is_below(path, out) or target.exists()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
