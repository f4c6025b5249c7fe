"""The questions of parity.

check    may these rewrites stay?
verify   do two models compute the same?
locate   where do they begin to differ?
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from normfuse.errors import CannotVerifyError
from normfuse.parity import deployed, placement
from normfuse.parity.baseline import Baseline, baseline_of, open_like
from normfuse.parity.beside import CannotCutError, trials_beside
from normfuse.parity.certificates import by_site, certificates
from normfuse.parity.floor import Floor
from normfuse.parity.model import Model
from normfuse.parity.rollback import first_difference, guilty, ordered
from normfuse.parity.room import within_memory
from normfuse.parity.seeds import pin
from normfuse.parity.sessions import Reference, RuntimeRefusalError, provider_name
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.verdict import ModelResult, ModelVerdict, OutputFigures, Parity
from normfuse.parity.whole import compare_all, run_all, verdict_of

# The original, the result, and the working memory of one of them.
COPIES_IN_MEMORY = 3


class UnverifiedError(CannotVerifyError):
    """The model could not be run; its rewrites were certified one by one, in `parity`."""

    def __init__(self, message: str, parity: Parity) -> None:
        super().__init__(message)
        self.parity = parity


@within_memory()
def check(original: Path, rewritten: Path, boundaries: Sequence[Boundary], settings: Settings) -> Parity:
    """Whether the rewrites between two models may stay, and which must be taken back."""
    started = time.perf_counter()
    provider_name(settings.provider)
    (before, seeded), (after, _) = pin(Model.load(original)), pin(Model.load(rewritten))
    too_large = _too_large(before, settings)
    if too_large:
        parity = by_site(before, after, boundaries, settings, too_large)
        return _timed(parity, started)
    try:
        baseline = baseline_of(before, settings)
    except CannotVerifyError as error:
        parity = by_site(before, after, boundaries, settings, str(error))
        held = sum(site.result in ("equal", "improved") for site in parity.sites.values())
        text = (
            f"{error}; {held} of {len(parity.sites)} rewrites hold when they are run alone"
            if boundaries
            else error
        )
        raise UnverifiedError(str(text), _timed(parity, started)) from error
    return _timed(_check(baseline, after, boundaries, settings, seeded), started)


def _timed(parity: Parity, started: float) -> Parity:
    return replace(parity, model=replace(parity.model, seconds=time.perf_counter() - started))


def _too_large(model: Model, settings: Settings) -> str:
    """Why a model is not run: what it would take, or ""."""
    needed = COPIES_IN_MEMORY * model.weight_bytes
    if settings.max_memory is None or needed <= settings.max_memory:
        return ""
    return (
        f"not run: that would take about {needed / 2**30:.1f} GB, above the limit of"
        f" {settings.max_memory / 2**30:.1f} GB; each rewrite was run alone, on made inputs"
    )


def _check(
    baseline: Baseline,
    after: Model,
    boundaries: Sequence[Boundary],
    settings: Settings,
    seeded: Sequence[str],
) -> Parity:
    sites = certificates(baseline, after, boundaries, settings)
    verdict = _whole(baseline, after, settings, seeded)
    improved = [b for b in boundaries if sites[b.output].result == "improved"]
    if improved and verdict.outputs and verdict.result != "equal":
        verdict = _beside_improved(baseline, after, improved, verdict, settings)
    disagree = verdict.result == "failed"
    blame = guilty(baseline.model, after, boundaries, sites, baseline.trials, settings, disagree)
    return Parity(verdict, sites, blame)


@within_memory()
def verify(a: Path, b: Path, settings: Settings) -> ModelVerdict:
    """Whether two models compute the same, on inputs that the first accepts."""
    started = time.perf_counter()
    provider_name(settings.provider)
    (before, seeded), (after, _) = pin(Model.load(a)), pin(Model.load(b))
    verdict = _whole(baseline_of(before, settings), after, settings, seeded)
    return replace(verdict, seconds=time.perf_counter() - started)


def locate(a: Path, b: Path, settings: Settings) -> str | None:
    """The first value, by name, that both models have and that differs; None where none does."""
    (before, _), (after, _) = pin(Model.load(a)), pin(Model.load(b))
    baseline = baseline_of(before, settings)
    shared = set(before.main.position) & set(after.main.position) - before.main.constant
    for trial in baseline.trials:
        found = first_difference(before, after, ordered(before, shared), trial, settings)
        if found is not None:
            return found
    return None


def _whole(baseline: Baseline, after: Model, settings: Settings, seeded: Sequence[str]) -> ModelVerdict:
    """The whole model at ORT_DISABLE_ALL, and at the level that it is deployed with."""
    notes = list(baseline.notes)
    if seeded:
        notes.append(f"random operators have the same seeds in both models: {', '.join(seeded[:3])}")
    inputs = tuple(trial.label for trial in baseline.trials)
    empty = ModelVerdict("failed", settings.provider, inputs=inputs, notes=tuple(notes), seed=settings.seed)
    if set(after.inputs) != set(baseline.model.inputs):
        return replace(empty, detail="the two models have different inputs")
    try:
        runner = open_like(baseline, after, settings)
    except RuntimeRefusalError as error:
        return replace(empty, detail=f"the result does not load: {error}")
    outcome = run_all(runner, baseline.trials)
    if outcome.refused:
        return replace(empty, detail=f"the result {outcome.refused}")
    figures = compare_all(baseline.trials, outcome.results, baseline.floor, baseline.unstable)
    if settings.deployed and not isinstance(baseline.runner, Reference):
        notes += deployed.notes(
            baseline.model,
            after,
            baseline.trials,
            outcome.results,
            baseline.floor,
            settings,
            baseline.unstable,
        )
        notes += placement.notes(after, baseline.trials[0].feed, settings)
    result = cast(ModelResult, verdict_of(figures))
    return replace(empty, result=result, outputs=figures, notes=tuple(notes), detail=_worst(figures))


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
