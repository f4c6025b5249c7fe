"""The stages in their order: read, rewrite, stage, verify; what fails is left out, and it is done again.

    source -> rewrite -> staged file -> parity -> guilty? -> rewrite without it …

Nothing here writes the output: what holds is staged, and committed by the caller.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
import onnx_ir as ir

from normfuse import model_io
from normfuse.errors import CannotVerifyError, ParityError, UsageError
from normfuse.graph.scopes import graphs, nodes
from normfuse.options import Options, leaver
from normfuse.parity.providers import require, short_name
from normfuse.parity.settings import Boundary, Feed, Settings
from normfuse.parity.verdict import ModelVerdict, Parity, SiteVerdict, UnverifiedError
from normfuse.pipeline.given import Model, source_of
from normfuse.pipeline.lowerings import Lowerings, Retries
from normfuse.pipeline.rewrite import rewrite
from normfuse.pipeline.rewritten import Rewritten
from normfuse.report.record import DONE, Report, Site
from normfuse.report.repeat import repeat_of
from normfuse.targets import Target, for_providers, resolve

Progress = Callable[[str], None]
MAX_ROLLBACKS = 8
# The rounds in which another lowering is tried in the place of one that failed.
MAX_RETRIES = 2


@dataclass(frozen=True)
class Counts:
    """What the report says of the source; taken before the graph is changed."""

    name: str
    nodes: int
    opset: int
    size: int
    warnings: tuple[str, ...]
    data_files: tuple[str, ...]

    @staticmethod
    def of(source: model_io.Source) -> Counts:
        """Take them from a source as it was read."""
        model = source.model
        opset = int(model.opset_imports.get("", 1))
        files = tuple(map(str, source.data_files))
        return Counts(source.name, _node_count(model), opset, source.size, source.warnings, files)


class Run:
    """One run of the pipeline: its options, target, and how long each stage took."""

    def __init__(self, options: Options, progress: Progress | None = None) -> None:
        options = self.options = dataclasses.replace(
            options, providers=tuple(dict.fromkeys(map(short_name, options.providers)))
        )
        self.target: Target = (
            resolve(options.target, options.max_opset)
            if options.target
            else for_providers(options.providers, options.max_opset)
        )
        self.progress: Progress = progress or (lambda stage: None)
        self.seconds: dict[str, float] = {}
        self.feeds: Sequence[Feed] = ()
        self.lowerings = Lowerings()

    def settings(self, provider: str) -> Settings:
        """What the models run on, with one of the providers."""
        asked = self.options
        return Settings(
            provider,
            asked.dims,
            asked.seed,
            inputs=self.feeds,
            given=asked.given,
            custom_operators=asked.custom_operators,
            max_memory=asked.max_memory,
            standard=self.target.standard,
            made_for=() if self.target.standard else self.target.runtimes,
        )

    def require_providers(self) -> None:
        """Found out before anything is read; the CPU needs no proof, and may not be needed."""
        if self.options.verify:
            require(provider for provider in self.options.providers if provider != "cpu")

    def read(self, model: Model) -> model_io.Source:
        """Read a model, and with the first one the inputs that were given for it.

        Raises InputError for what is no valid model, UsageError for inputs that do not fit it.
        """
        self.progress("reading")
        with self.timed("read"):
            source = source_of(model)
            if self.options.inputs is not None and not self.feeds:
                from normfuse.parity.given import read_inputs

                self.feeds = read_inputs(Path(self.options.inputs), _input_names(source.model))
            return source

    def until_it_holds(
        self, source: model_io.Source, before: Counts, out: Path | None
    ) -> tuple[Rewritten, model_io.Staged, list[Parity]]:
        """Rewrite and verify; say otherwise or leave out what failed, until what there is holds."""
        taken_back: dict[str, SiteVerdict | None] = {}
        retries = Retries()
        fresh = source
        for round_ in range(MAX_ROLLBACKS):
            self.progress("rewriting")
            with model_io.no_collection():
                with self.timed("rewrite"):
                    done = self._rewritten(fresh, taken_back, retries)
                with self.timed("write"):
                    staged = staged_file(done, source, out, self.options)
            with ExitStack() as undo:
                undo.callback(staged.discard)
                try:
                    verdicts = self._verdicts(source, staged, done.boundaries) if changed(done) else []
                except UnverifiedError as error:
                    found = self.report(before, done, [error.parity], None)
                    raise CannotVerifyError(str(error), error.hint, found) from error
                guilty = {name: _why(v, name, len(verdicts) > 1) for v in verdicts for name in v.guilty}
                done.sites = [retries.explained(_condemned(site, taken_back)) for site in done.sites]
                if not guilty.keys() - taken_back.keys():
                    _require(verdicts, partial(self.report, before, done, verdicts, None))
                    undo.pop_all()
                    return done, staged, verdicts
            again = retries.add(done, guilty, self.lowerings.plan) if round_ < MAX_RETRIES else set()
            taken_back.update({name: why for name, why in guilty.items() if name not in again})
            fresh = source.again()
        raise ParityError(
            f"{source.name}: after {MAX_ROLLBACKS} rounds of taking rewrites back it still differs"
        )

    def _rewritten(
        self, source: model_io.Source, taken_back: dict[str, SiteVerdict | None], retries: Retries
    ) -> Rewritten:
        """The source rewritten, without what was taken back."""
        leave = leaver(self.options.skip, taken_back)
        try:
            done = rewrite(source.model, self.target, leave, {**self.lowerings.plan, **retries.plan})
        except UsageError:  # without what was taken back, a site may have fewer lowerings than it had
            if not retries.plan:
                raise
            taken_back.update(dict.fromkeys(retries.plan))
            retries.plan.clear()
            return self._rewritten(source.again(), taken_back, retries)
        self.lowerings.require_sites(done, source.name)
        return done

    def _verdicts(
        self, source: model_io.Source, staged: model_io.Staged, boundaries: Sequence[Boundary]
    ) -> list[Parity]:
        if not self.options.verify:
            return []
        from normfuse.parity.check import check

        self.progress("verifying")
        with self.timed("verify"), model_io.original(source) as original:
            return [
                check(original, staged.path, boundaries, self.settings(p)) for p in self.options.providers
            ]

    def report(
        self, before: Counts, done: Rewritten, verdicts: Sequence[Parity], staged: model_io.Staged | None
    ) -> Report:
        """All that is known of the run.

        verdicts: one for each provider, none where nothing was verified.
        staged: None where there is nothing to write.
        """
        foreign, model = _foreign(done.model), done.model
        is_changed = changed(done)
        return Report(
            model=before.name,
            target=self.target.name,
            providers=self.options.providers,
            sites=tuple(_with_parity(site, verdicts) for site in done.sites),
            nodes_before=before.nodes,
            nodes_after=_node_count(model) if is_changed else before.nodes,
            opset_before=before.opset,
            opset_after=int(model.opset_imports.get("", 1)) if is_changed else before.opset,
            standard_onnx=not foreign,
            foreign=foreign,
            parity=_deciding(verdicts),
            verdicts=tuple(v.model for v in verdicts),
            warnings=_warnings(before.warnings, done),
            bytes_before=before.size,
            bytes_after=staged.size if staged is not None else 0,
            data_files=before.data_files,
            depends_on=tuple(map(str, staged.depends_on)) if staged is not None else (),
            seconds={name: round(value, 3) for name, value in self.seconds.items()},
            repeat=repeat_of("optimize", before.name, self.options),
            tuning=self.lowerings.tuning,
        )

    def timed(self, name: str) -> _Timer:
        """Around a stage, whose time the report tells."""
        return _Timer(self.seconds, name)


class _Timer:
    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + time.perf_counter() - self.started


def changed(done: Rewritten) -> bool:
    """Whether anything was rewritten at all; if not, the output is a copy of the source."""
    return any(site.status in DONE for site in done.sites)


def staged_file(
    done: Rewritten, source: model_io.Source, out: Path | None, options: Options
) -> model_io.Staged:
    """The rewritten model beside its destination, or a copy of the source where nothing was rewritten."""
    placement = model_io.Placement(options.copy_data, options.in_place and out is not None)
    if not changed(done):
        return model_io.copy_unchanged(source, out, placement)
    return model_io.stage(done.model, source, out, placement)


def _require(verdicts: Sequence[Parity], report: Callable[[], Report]) -> None:
    """Refuse a result that was not shown to compute the same."""
    for verdict in (v.model for v in verdicts):
        if verdict.result == "failed":
            raise ParityError(f"the result differs on {verdict.provider}: {verdict.detail}", report=report())
        if verdict.result in ("inconclusive", "not-run"):
            raise CannotVerifyError(f"not verified on {verdict.provider}: {verdict.detail}", report=report())


def _deciding(verdicts: Sequence[Parity]) -> ModelVerdict | None:
    """The worst of the verdicts on all providers, or the first of those that are as bad."""
    order = ("failed", "inconclusive", "not-run", "certified-by-site", "equal")
    return min((v.model for v in verdicts), key=lambda v: order.index(v.result), default=None)


def _why(parity: Parity, name: str, several: bool) -> SiteVerdict | None:
    """The verdict for which a rewrite is taken back; several: whether there are more providers than one."""
    verdict = parity.sites.get(name)
    if verdict is None:
        return None
    detail = verdict.detail
    if verdict.result in ("equal", "improved"):
        detail = f"alone it holds, and with it the model differs: {parity.model.detail}"
    start = f"on {parity.model.provider}: " if several else ""
    return dataclasses.replace(verdict, detail=start + detail)


def _with_parity(site: Site, verdicts: Sequence[Parity]) -> Site:
    found = [v.sites[site.output] for v in verdicts if site.output in v.sites]
    if not found or site.status not in DONE:
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


def _input_names(model: ir.Model) -> list[str]:
    """What has to be fed: an input with an initializer has a value already."""
    return [v.name for v in model.graph.inputs if v.name and v.name not in model.graph.initializers]


def _node_count(model: ir.Model) -> int:
    return sum(graph.num_nodes() for graph in graphs(model))


def _foreign(model: ir.Model) -> tuple[str, ...]:
    """Operators that neither exist in ONNX at the model's opset nor are functions of the model."""
    opset = int(model.opset_imports.get("", 1))
    operators = {(n.domain, n.op_type) for n in nodes(model)}
    local = {(f.domain, f.name) for f in model.functions.values()}
    found = {
        key
        for key in operators - local
        if not (key[0] in ("", "ai.onnx.ml") and _exists(key[1], key[0], opset))
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
