"""The questions of parity.

check    may these rewrites stay?
verify   do two models compute the same?     where do they begin to differ: locate.py
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from normfuse.errors import CannotVerifyError
from normfuse.parity import deployed
from normfuse.parity.baseline import Baseline, baseline_of, open_like
from normfuse.parity.beside import CannotCutError, trials_beside
from normfuse.parity.certificates import Cuts, by_site, certificates, unproved
from normfuse.parity.differences import Differences
from normfuse.parity.floor import Floor
from normfuse.parity.memory import in_words, limit_of
from normfuse.parity.model import Model, every_node
from normfuse.parity.placement import Places, placement, places_of, sentence
from normfuse.parity.provider_faults import told_apart
from normfuse.parity.providers import provider_name, require
from normfuse.parity.record import names_read
from normfuse.parity.recorder import Recorder
from normfuse.parity.rollback import guilty
from normfuse.parity.room import within_memory
from normfuse.parity.seeds import pin
from normfuse.parity.sessions import NO_KERNEL, Reference, RuntimeRefusalError
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.verdict import ModelResult, ModelVerdict, OutputFigures, Parity, UnverifiedError
from normfuse.parity.whole import compare_all, is_close, run_all, verdict_of

# The original, the result, and the working memory of one of them.
COPIES_IN_MEMORY = 3


@within_memory()
def check(original: Path, rewritten: Path, boundaries: Sequence[Boundary], settings: Settings) -> Parity:
    """Whether the rewrites between two models may stay, and which must be taken back."""
    started = time.perf_counter()
    require([settings.provider])
    (before, seeded), (after, _) = pin(Model.load(original)), pin(Model.load(rewritten))
    cuts = Cuts.of(before, after, boundaries)
    too_large = _too_large(before, settings)
    if too_large:
        return _timed(by_site(before, cuts, settings, too_large), started)
    try:
        baseline = baseline_of(before, settings, names_read(before, cuts.sites))
    except CannotVerifyError as error:
        parity = by_site(before, cuts, settings, str(error))
        held = sum(site.result in ("equal", "improved") for site in parity.sites.values())
        alone = f"; run alone, {held} of {len(parity.sites)} rewrites hold" if boundaries else ""
        text = f"{error}{alone}"
        model = replace(parity.model, result="not-run", detail=text, notes=())
        raise UnverifiedError(text, error.hint, _timed(replace(parity, model=model), started)) from error
    return _timed(_check(baseline, after, cuts, settings, seeded), started)


def _timed(parity: Parity, started: float) -> Parity:
    return replace(parity, model=replace(parity.model, seconds=time.perf_counter() - started))


def _too_large(model: Model, settings: Settings) -> str:
    """Why a model is not run: what it would take, or ""."""
    needed, limit = COPIES_IN_MEMORY * model.weight_bytes, limit_of(settings)
    if needed <= limit:
        return ""
    return (
        f"not run: that would take about {in_words(needed)}, above the limit of {in_words(limit)}"
        " (--max-memory); each rewrite was run alone, on made inputs"
    )


def _check(baseline: Baseline, after: Model, cuts: Cuts, settings: Settings, seeded: Sequence[str]) -> Parity:
    boundaries = cuts.boundaries
    after.share_weights()
    where = places_of(after, baseline.trials[0].feed, settings)
    sites = certificates(baseline, cuts, settings, where)
    if isinstance(baseline.runner, Recorder):
        baseline.runner.forget()
    verdict = _whole(baseline, after, settings, seeded, where)
    improved = [b for b in boundaries if sites[b.output].result == "improved"]
    if improved and verdict.outputs and verdict.result != "equal":
        verdict = _beside_improved(baseline, after, improved, verdict, settings)
    disagree = verdict.result == "failed"
    blame = guilty(baseline.model, after, boundaries, sites, baseline.trials, settings, disagree)
    if verdict.result == "certified-by-site":  # nothing else vouches for them
        blame = unproved(sites)
    return Parity(verdict, sites, blame)


@within_memory()
def verify(a: Path, b: Path, settings: Settings) -> ModelVerdict:
    """Whether two models compute the same, on inputs that the first accepts."""
    started = time.perf_counter()
    require([settings.provider])
    (before, seeded), (after, _) = pin(Model.load(a)), pin(Model.load(b))
    too_large = _too_large(before, settings) or _too_large(after, settings)
    if too_large:
        verdict = _verify_by_site(before, after, settings, too_large)
        return replace(verdict, seconds=time.perf_counter() - started)
    baseline = baseline_of(before, settings)
    where = places_of(after, baseline.trials[0].feed, settings)
    verdict = _whole(baseline, after, settings, seeded, where)
    return replace(verdict, seconds=time.perf_counter() - started)


def _verify_by_site(before: Model, after: Model, settings: Settings, why: str) -> ModelVerdict:
    """Two models that are not run: the nodes between values of both, piece by piece, where they differ."""
    differences = Differences(before, after)
    cuts = Cuts.of(before, after, differences.boundaries())
    parity = by_site(before, cuts, settings, why)
    unmatched = differences.unmatched()
    if unmatched:
        return replace(parity.model, result="failed", detail=unmatched)
    note = f"{len(cuts.boundaries)} values of both models are computed by other nodes; the rest is the same"
    failed = any(site.result == "failed" for site in parity.sites.values())
    result = parity.model.result if parity.model.agrees or failed else "inconclusive"
    return replace(parity.model, result=result, notes=(*parity.model.notes, note))


def _whole(
    baseline: Baseline, after: Model, settings: Settings, seeded: Sequence[str], where: Places
) -> ModelVerdict:
    """The whole model at ORT_DISABLE_ALL, and at the level that it is deployed with."""
    notes = list(baseline.notes)
    if seeded:
        notes.append(f"random operators have the same seeds in both models: {', '.join(seeded[:3])}")
    inputs = tuple(trial.label for trial in baseline.trials)
    empty = ModelVerdict("failed", settings.provider, inputs=inputs, notes=tuple(notes), seed=settings.seed)
    empty = replace(empty, plain_run=baseline.plain_run)
    if set(after.inputs) != set(baseline.model.inputs):
        return replace(empty, detail="the two models have different inputs")
    try:
        runner = open_like(baseline, after, settings)
    except RuntimeRefusalError as error:
        if settings.standard and error.kind == NO_KERNEL:
            note = f"the result is standard ONNX that this onnxruntime does not run ({error}): its new nodes"
            notes.append(f"{note} were run alone, by ONNX's reference evaluator")
            return replace(empty, result="certified-by-site", notes=tuple(notes))
        if settings.elsewhere and error.kind == NO_KERNEL:
            return replace(empty, result="not-run", detail=_only_elsewhere(baseline.model, after, settings))
        return _refused(empty, baseline, f"does not load: {error}")
    outcome = run_all(runner, baseline.trials)
    if outcome.refused:
        return _refused(empty, baseline, outcome.refused)
    del runner  # with its weights
    unstable = () if is_close(baseline.trials, outcome.results) else baseline.unstable
    if unstable:
        notes.append(f"two runs of the original differ in {', '.join(unstable)}: nothing can be said of them")
    figures = compare_all(baseline.trials, outcome.results, baseline.floor, unstable)
    figures, faults = told_apart(baseline, after, outcome.results, figures, settings)
    failed = verdict_of(figures) == "failed"
    notes += [] if failed else faults
    if settings.deployed and not isinstance(baseline.runner, Reference):
        notes += deployed.notes(baseline, after, outcome.results, settings)
    placed = None if isinstance(baseline.runner, Reference) else placement(after, where, settings)
    notes += filter(None, [sentence(placed, where) if placed else ""])
    result = cast(ModelResult, verdict_of(figures))
    detail = "; ".join(filter(None, (_worst(figures), *(faults if failed else ()))))
    return replace(empty, result=result, outputs=figures, notes=tuple(notes), detail=detail, placement=placed)


def _only_elsewhere(before: Model, after: Model, settings: Settings) -> str:
    """What the result holds that only the providers which it is for can run, and what to do."""
    known = {(node.domain, node.op_type) for node in every_node(before.proto.graph)}
    new = {(node.domain, node.op_type) for node in every_node(after.proto.graph)} - known
    named = ", ".join(sorted(f"{domain}.{kind}" for domain, kind in new if domain)) or "an operator"
    flags = " ".join(f"--ep {name}" for name in settings.made_for)
    return (
        f"the result holds {named}, which onnxruntime's {provider_name(settings.provider)} cannot run:"
        f" {flags} verifies it there, --no-verify writes it unproven"
    )


def _refused(verdict: ModelVerdict, baseline: Baseline, why: str) -> ModelVerdict:
    """The result does not run; where the provider refuses the original as well, that says nothing."""
    if not baseline.refused:
        return replace(verdict, detail=f"the result {why}")
    detail = f"the provider runs neither the original nor the result, which {why}"
    return replace(verdict, result="inconclusive", detail=detail)


def _worst(figures: Sequence[OutputFigures]) -> str:
    """What decided against equal, or why nothing could be concluded."""
    bad = [f for f in figures if f.conclusive and not f.agrees]
    if bad:
        return f"output {bad[0].name!r}: {bad[0].detail}"
    if verdict_of(figures) == "equal":
        return ""
    vain = [f for f in figures if not f.conclusive]
    more = f" (and {len(vain) - 1} more like it)" if len(vain) > 1 else ""
    return f"output {vain[0].name!r}{more}: {vain[0].detail}; give other inputs with --inputs or --dim"


def _beside_improved(
    baseline: Baseline, after: Model, improved: Sequence[Boundary], first: ModelVerdict, settings: Settings
) -> ModelVerdict:
    """Judge the rest of the model, where improved sites make its outputs differ from the original's."""
    try:
        cut, runner, found, results = trials_beside(
            baseline.model, after, improved, baseline.trials, settings
        )
    except CannotCutError as error:
        return replace(first, notes=(*first.notes, f"the improved rewrites could not be set apart: {error}"))
    floor = Floor(baseline.model, runner, settings, cut.proto)
    figures = compare_all(found, results, floor, baseline.unstable)
    vouched = [
        replace(f, agrees=True, conclusive=True, detail="closer to float64 than the original's")
        for f in first.outputs
        if f.name in cut.given
    ]
    far = max((f.max_relative for f in first.outputs if np.isfinite(f.max_relative)), default=0.0)
    note = (
        f"{len(improved)} rewrites are closer to float64 than the original, so outputs differ from the"
        f" original's by up to {far:.1e}; the figures are those of the rest of the model, these results given"
    )
    named = {f.name for f in first.outputs}
    shown = tuple(f for f in (*figures, *vouched) if f.name in named)
    result = cast(ModelResult, verdict_of(figures))
    return replace(first, result=result, outputs=shown, notes=(*first.notes, note), detail=_worst(figures))
