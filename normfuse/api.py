"""The pipeline: read, rewrite, stage, verify, commit.

    model file -> model_io -> rewrite -> model_io (temporary file) -> parity -> rename into place
                                 ^                                       |
                                 +-- guilty sites are left out, again ---+

Nothing is written before parity holds. A site that fails its check is taken back by rewriting the source
again without it, so there is no undo in the graph.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from normfuse import model_io
from normfuse.errors import UsageError
from normfuse.options import Options, check_skip, leaver
from normfuse.parity.settings import Settings
from normfuse.parity.verdict import ModelVerdict
from normfuse.pipeline.given import Given, Model, as_given
from normfuse.pipeline.rewrite import rewrite
from normfuse.pipeline.rewritten import Rewritten
from normfuse.pipeline.run import Counts, Progress, Run, changed
from normfuse.report.record import Report
from normfuse.report.repeat import repeat_of

if TYPE_CHECKING:
    from normfuse.bench.benchmark import Benchmark
    from normfuse.parity.locate import Located

Out = str | os.PathLike[str] | BinaryIO
Answer = TypeVar("Answer")

SUFFIX = ".fused.onnx"
"""What a result beside its source is called by; no source is."""


@dataclass(frozen=True)
class Result:
    """What `optimize` returns: the model, of the kind that was given, and the report.

    model: a Path for a path (the file that was written; None after a dry run, or where a stream was written
        to), a ModelProto for a ModelProto, an onnx_ir.Model for an onnx_ir.Model, bytes for bytes.
    """

    model: Given
    report: Report


def optimize(
    model: Model, out: Out | None = None, options: Options | None = None, progress: Progress | None = None
) -> Result:
    """Fuse every normalization, fold every affine, verify, and write.

    model: a path, the bytes of a model file, a ModelProto, or an onnx_ir.Model; what is in memory is never
        changed.
    out: where to write, a path or a binary stream; by default `model.fused.onnx` beside a model that was
        given as a path (or the model itself, with `in_place`), and nowhere for one in memory.
    progress: called with the name of each stage when it begins.

    Raises InputError for what is no valid model, UsageError for options that make no sense, CannotVerifyError
    where the result could not be run, ParityError where it does not compute the same: then nothing is
    written.
    """
    options = options or Options()
    run = Run(options, progress)
    run.require_providers()
    source = run.read(model)
    stream = None if out is None or isinstance(out, str | os.PathLike) else out
    path = _destination(source, out, options)
    check_skip(options.skip, source.model, source.name)
    before = Counts.of(source)
    if options.tune or options.plan is not None:
        from normfuse.pipeline import tuning

        tuning.decide(run, source, path)
    done, staged, verdicts = run.until_it_holds(source, before, None if options.dry_run else path)
    with staged:
        report = run.report(before, done, verdicts, staged)
        if options.illustrated:
            report = _illustrated(report, run, source, done, staged)
        written = None
        if stream is not None and not options.dry_run:
            _send(staged, stream)
        elif path is not None and not options.dry_run and not _is_there_already(source, done, options):
            written = staged.commit()
            report = dataclasses.replace(report, written=str(written))
        if options.tune:
            tuning.write(run, source)
        file = path if options.in_place else written
        return Result(as_given(model, source, done.model, changed=changed(done), written=file), report)


def inspect(model: Model, options: Options | None = None) -> Report:
    """What `optimize` would do and what it would leave, and why; nothing is run or written, so not tuned."""
    options = dataclasses.replace(options or Options(), tune=False)
    run = Run(options)
    source = run.read(model)
    check_skip(options.skip, source.model, source.name)
    before = Counts.of(source)
    if options.plan is not None:
        from normfuse.pipeline import tuning

        tuning.decide(run, source, None)
    done = rewrite(source.model, run.target, leaver(options.skip, ()), run.lowerings.plan)
    run.lowerings.require_sites(done, source.name)
    repeat = repeat_of("inspect", source.name, options)
    report = dataclasses.replace(run.report(before, done, [], None), outlook=True, repeat=repeat)
    if not options.illustrated:
        return report
    from normfuse.pipeline import illustrate

    return illustrate.with_drawings(report, source, done.model)


def verify(first: Model, second: Model, options: Options | None = None) -> list[ModelVerdict]:
    """Whether two models compute the same: one verdict for each execution provider that is asked for."""
    from normfuse.parity.check import verify

    return _of_two(first, second, options, verify)


def locate(first: Model, second: Model, options: Options | None = None) -> list[Located]:
    """Where two models begin to differ: the first such tensor on each execution provider that is asked for.

    Only tensors that have the same name in both models can be compared.
    """
    from normfuse.parity.locate import locate

    return _of_two(first, second, options, locate)


def _of_two(
    first: Model, second: Model, options: Options | None, ask: Callable[[Path, Path, Settings], Answer]
) -> list[Answer]:
    """What is asked of two models, on each execution provider."""
    run = Run(options or Options())
    run.require_providers()
    with ExitStack() as stack:
        a, b = (stack.enter_context(model_io.original(run.read(model))) for model in (first, second))
        return [ask(a, b, run.settings(provider)) for provider in run.options.providers]


def benchmark(
    models: Sequence[Model],
    options: Options | None = None,
    *,
    threads: int = 1,
    seconds: float = 5.0,
    profile: bool = False,
    progress: Progress | None = None,
) -> list[Benchmark]:
    """The latency of models side by side: one benchmark for each execution provider that is asked for.

    models: the first is what the others are compared with. options: providers, and what the models run on.
    threads: of one operator, 0 for the runtime's own choice. seconds: the budget for measuring.
    profile: also say which operators take the time.

    Raises UsageError for models of different inputs, CannotVerifyError for one that does not load or run.
    """
    from normfuse.bench.latency import measure
    from normfuse.bench.running import Named

    run = Run(options or Options(), progress)
    with ExitStack() as stack:
        sources = [run.read(model) for model in models]
        files = [stack.enter_context(model_io.original(source)) for source in sources]
        named = [Named(source.name, file) for source, file in zip(sources, files, strict=True)]
        return [
            measure(
                named,
                run.settings(provider),
                threads=threads,
                seconds=seconds,
                profile=profile,
                progress=run.progress,
            )
            for provider in run.options.providers
        ]


def _illustrated(
    report: Report, run: Run, source: model_io.Source, done: Rewritten, staged: model_io.Staged
) -> Report:
    """The report with pictures, and with the latency where models may be run and there are two to compare."""
    from normfuse.pipeline import illustrate

    run.progress("drawing and timing")
    report = illustrate.with_drawings(report, source, done.model)
    if not (run.options.verify and report.changed):
        return report
    return illustrate.with_latency(report, source, staged.path, run.settings(run.options.providers[0]))


def _destination(source: model_io.Source, out: Out | None, options: Options) -> Path | None:
    """The file to write, or None where there is none to be; refused early where it makes no sense."""
    if options.in_place:
        if out is not None or source.path is None:
            what = "a model that is not in a file" if source.path is None else "another output"
            raise UsageError(f"in place does not go with {what}")
        return source.path
    if out is not None and not isinstance(out, str | os.PathLike):
        if source.data_files:
            raise UsageError(
                f"{source.name} has weights in {source.data_files[0].name!r}, and a stream holds one file",
                hint="write to a file with -o",
            )
        return None
    if out is not None:
        return Path(out)
    return None if source.path is None else source.path.with_name(source.path.stem + SUFFIX)


def _is_there_already(source: model_io.Source, done: Rewritten, options: Options) -> bool:
    """Whether in place nothing is left to do: then the file is not even touched."""
    return options.in_place and not changed(done) and not (options.copy_data and source.data_files)


def _send(staged: model_io.Staged, stream: BinaryIO) -> None:
    """Write the verified model to a stream."""
    if not staged.is_one_file:
        raise UsageError("the result is larger than 2 GB, so it needs a data file", hint="write to a file")
    with open(staged.path, "rb") as file:
        while block := file.read(1 << 20):
            _put(stream, block)
    _put(stream, b"")


def _put(stream: BinaryIO, block: bytes) -> None:
    """Write a block, or flush after the last one."""
    try:
        stream.write(block) if block else stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        name = str(getattr(stream, "name", "the stream")).replace("<stdout>", "standard output")
        raise UsageError(f"cannot write the model to {name}: {error.strerror or error}") from error
