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
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir

from normfuse import model_io
from normfuse.errors import CannotVerifyError, ParityError, UsageError
from normfuse.model_io.serialize import to_proto
from normfuse.options import Options, check_skip, leaver
from normfuse.parity import Boundary, Parity, Settings, read_inputs
from normfuse.parity.settings import Feed
from normfuse.parity.verdict import ModelVerdict, SiteVerdict
from normfuse.report.record import Report, Site
from normfuse.rewrite import Rewritten, rewrite
from normfuse.targets import Target, for_providers, resolve

Model = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model
Out = str | os.PathLike[str] | BinaryIO
Progress = Callable[[str], None]
MAX_ROLLBACKS = 8


@dataclass(frozen=True)
class Result:
    """What `optimize` returns: the model, of the kind that was given, and the report.

    model: a Path for a path (the file that was written; None after a dry run, or where a stream was written
        to), a ModelProto for a ModelProto, an onnx_ir.Model for an onnx_ir.Model, bytes for bytes.
    """

    model: Path | bytes | onnx.ModelProto | ir.Model | None
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
    run = _Run(options, progress or (lambda stage: None))
    source = run.read(model)
    stream = None if out is None or isinstance(out, str | os.PathLike) else out
    path = _destination(source, out, options)
    check_skip(options.skip, source.model, source.name)
    before = _Counts.of(source)
    done, staged, verdicts = run.until_it_holds(source, before, None if options.dry_run else path)
    with staged:
        report = run.report(before, done, verdicts, staged)
        written = None
        if stream is not None and not options.dry_run:
            _send(staged, stream)
        elif path is not None and not options.dry_run and not _is_there_already(source, done, options):
            written = staged.commit()
            report = dataclasses.replace(report, written=str(written))
        return Result(_as_given(model, done, source, path if options.in_place else written), report)


def inspect(model: Model, options: Options | None = None) -> Report:
    """What `optimize` would do and what it would leave, and why; nothing is run or written."""
    options = options or Options()
    run = _Run(options, lambda stage: None)
    source = run.read(model)
    check_skip(options.skip, source.model, source.name)
    before = _Counts.of(source)
    return run.report(before, rewrite(source.model, run.target, leaver(options.skip, ())), [], None)


def verify(first: Model, second: Model, options: Options | None = None) -> list[ModelVerdict]:
    """Whether two models compute the same: one verdict for each execution provider that is asked for."""
    from normfuse import parity

    options = options or Options()
    run = _Run(options, lambda stage: None)
    with ExitStack() as stack:
        a, b = (stack.enter_context(model_io.original(run.read(m))) for m in (first, second))
        return [parity.verify(a, b, run.settings(provider)) for provider in options.providers]


@dataclass(frozen=True)
class _Counts:
    """What the report says of the source; taken before the graph is changed."""

    name: str
    nodes: int
    opset: int
    size: int
    warnings: tuple[str, ...]

    @staticmethod
    def of(source: model_io.Source) -> _Counts:
        model = source.model
        opset = int(model.opset_imports.get("", 1))
        return _Counts(source.name, _node_count(model), opset, source.size, source.warnings)


class _Run:
    """One run of the pipeline: its options, target, and how long each stage took."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options = options
        self.target: Target = resolve(options.target) if options.target else for_providers(options.providers)
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.feeds: Sequence[Feed] = ()

    def settings(self, provider: str) -> Settings:
        asked = self.options
        return Settings(provider, asked.dims, asked.seed, inputs=self.feeds, given=asked.given)

    def read(self, model: Model) -> model_io.Source:
        self.progress("reading")
        with self._timed("read"):
            source = self._source(model)
            if (
                self.options.inputs is not None and not self.feeds
            ):  # they are for the first model that is read
                self.feeds = read_inputs(Path(self.options.inputs), _input_names(source.model))
            return source

    def _source(self, model: Model) -> model_io.Source:
        if isinstance(model, bytes):
            return model_io.from_bytes(model)
        if isinstance(model, onnx.ModelProto):
            return model_io.from_proto(model)
        return model_io.from_ir(model) if isinstance(model, ir.Model) else model_io.read(Path(model))

    def until_it_holds(
        self, source: model_io.Source, before: _Counts, out: Path | None
    ) -> tuple[Rewritten, model_io.Staged, list[Parity]]:
        """Rewrite and verify; leave out what failed and do it again, until what is left holds."""
        taken_back: dict[str, SiteVerdict | None] = {}
        fresh = source
        for _ in range(MAX_ROLLBACKS):
            self.progress("rewriting")
            with self._timed("rewrite"), model_io.no_collection():
                done = rewrite(fresh.model, self.target, leaver(self.options.skip, taken_back))
            with self._timed("write"), model_io.no_collection():
                staged = _stage(done, source, out, self.options)
            with ExitStack() as undo:
                undo.callback(staged.discard)
                verdicts = self._verdicts(source, staged, done.boundaries) if _changed(done) else []
                guilty = {name: v.sites.get(name) for v in verdicts for name in v.guilty}
                done.sites = [_condemned(site, taken_back) for site in done.sites]
                if not guilty.keys() - taken_back.keys():
                    _require(verdicts, partial(self.report, before, done, verdicts, None))
                    undo.pop_all()
                    return done, staged, verdicts
            taken_back.update(guilty)
            fresh = source.again()
        raise ParityError(
            f"{source.name}: after {MAX_ROLLBACKS} rounds of taking rewrites back it still differs"
        )

    def _verdicts(
        self, source: model_io.Source, staged: model_io.Staged, boundaries: Sequence[Boundary]
    ) -> list[Parity]:
        if not self.options.verify:
            return []
        from normfuse import parity

        self.progress("verifying")
        with self._timed("verify"), model_io.original(source) as original:
            return [
                parity.check(original, staged.path, boundaries, self.settings(p))
                for p in self.options.providers
            ]

    def report(
        self, before: _Counts, done: Rewritten, verdicts: Sequence[Parity], staged: model_io.Staged | None
    ) -> Report:
        return Report(
            model=before.name,
            target=self.target.name,
            providers=self.options.providers,
            sites=tuple(_with_parity(site, verdicts) for site in done.sites),
            nodes_before=before.nodes,
            nodes_after=_node_count(done.model),
            opset_before=before.opset,
            opset_after=int(done.model.opset_imports.get("", 1)),
            standard_onnx=not _foreign(done.model),
            foreign=_foreign(done.model),
            parity=verdicts[0].model if verdicts else None,
            warnings=_warnings(before.warnings, done),
            bytes_before=before.size,
            bytes_after=staged.size if staged is not None else 0,
            depends_on=tuple(map(str, staged.depends_on)) if staged is not None else (),
            seconds={name: round(value, 3) for name, value in self.seconds.items()},
        )

    def _timed(self, name: str) -> _Timer:
        return _Timer(self.seconds, name)


class _Timer:
    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + time.perf_counter() - self.started


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
    return None if source.path is None else source.path.with_name(f"{source.path.stem}.fused.onnx")


def _is_there_already(source: model_io.Source, done: Rewritten, options: Options) -> bool:
    """Whether in place nothing is left to do: then the file is not even touched."""
    return options.in_place and not _changed(done) and not (options.copy_data and source.data_files)


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


def _changed(done: Rewritten) -> bool:
    return any(site.status in ("fused", "folded", "guarded") for site in done.sites)


def _stage(done: Rewritten, source: model_io.Source, out: Path | None, options: Options) -> model_io.Staged:
    placement = model_io.Placement(options.copy_data, options.in_place and out is not None)
    if not _changed(done):
        return model_io.copy_unchanged(source, out, placement)
    return model_io.stage(done.model, source, out, placement)


def _require(verdicts: Sequence[Parity], report: Callable[[], Report]) -> None:
    """Refuse a result that was not shown to compute the same."""
    for verdict in (v.model for v in verdicts):
        if verdict.result == "failed":
            raise ParityError(f"the result differs on {verdict.provider}: {verdict.detail}", report=report())
        if verdict.result in ("inconclusive", "not-run"):
            raise CannotVerifyError(f"not verified on {verdict.provider}: {verdict.detail}")


def _with_parity(site: Site, verdicts: Sequence[Parity]) -> Site:
    found = [v.sites[site.output] for v in verdicts if site.output in v.sites]
    if not found or site.status not in ("fused", "folded", "guarded"):
        return site
    worst = max(found, key=_severity)
    return dataclasses.replace(site, parity=worst)


def _condemned(site: Site, taken_back: Mapping[str, SiteVerdict | None]) -> Site:
    """A site that was taken back, with the figures for which it was."""
    if site.status != "rolled-back":
        return site
    return dataclasses.replace(site, parity=taken_back.get(site.output))


def _severity(verdict: SiteVerdict) -> int:
    return ("equal", "improved", "inconclusive", "failed").index(verdict.result)


def _as_given(
    model: Model, done: Rewritten, source: model_io.Source, written: Path | None
) -> Path | bytes | onnx.ModelProto | ir.Model | None:
    if isinstance(model, ir.Model):
        return done.model
    if isinstance(model, bytes):
        changed = to_proto(done.model, source) if _changed(done) else None
        return model if changed is None else changed.SerializeToString(deterministic=True)
    return to_proto(done.model, source) if isinstance(model, onnx.ModelProto) else written


def _input_names(model: ir.Model) -> list[str]:
    """What has to be fed: an input with an initializer has a value already."""
    return [v.name for v in model.graph.inputs if v.name and v.name not in model.graph.initializers]


def _node_count(model: ir.Model) -> int:
    return sum(1 for _ in ir.traversal.RecursiveGraphIterator(model.graph))


def _foreign(model: ir.Model) -> tuple[str, ...]:
    """Operators that neither exist in ONNX at the model's opset nor are functions of the model."""
    opset = int(model.opset_imports.get("", 1))
    operators = {(n.domain, n.op_type) for n in ir.traversal.RecursiveGraphIterator(model.graph)}
    local = {(f.domain, f.name) for f in model.functions.values()}
    found = {
        key
        for key in operators - local
        if not (key[0] in ("", "ai.onnx", "ai.onnx.ml") and _exists(key[1], key[0], opset))
    }
    return tuple(sorted(f"{domain}.{name}" if domain else name for domain, name in found))


def _exists(op_type: str, domain: str, opset: int) -> bool:
    if domain == "ai.onnx.ml":
        return onnx.defs.has(op_type, domain)
    return onnx.defs.has(op_type, opset, "")


def _warnings(of_source: Sequence[str], done: Rewritten) -> tuple[str, ...]:
    training = [s.anchor for s in done.sites if s.reason == "training-mode"]
    warnings = list(of_source)
    if training:
        warnings.insert(0, f"{len(training)} BatchNormalization in training mode ({training[0]}"
                           f"{', …' if len(training) > 1 else ''}): the model was probably exported without "
                           "eval(); export it again")  # fmt: skip
    return tuple(warnings)
