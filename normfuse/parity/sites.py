"""Site certificates: each rewrite alone, original nodes against replacement, both held against float64.

A site sees inputs recorded from the model's own run and rows made to expose wrong rewrites (adversarial.py).
The bound is derived in judge.py. Where float64 cannot evaluate the original nodes, the original's own result
in the runtime stands for the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from normfuse.parity.adversarial import Variant, variants
from normfuse.parity.blame import kernels_fault, who_refuses
from normfuse.parity.crop import EXTENT, MANY_BYTES, SHORT, cropped, distinct, shrunk
from normfuse.parity.extract import CannotExtractError, Piece, extract, extract_constant, stored
from normfuse.parity.judge import Judgement
from normfuse.parity.model import Model
from normfuse.parity.sessions import RuntimeRefusalError
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.sides import Sides
from normfuse.parity.together import truths
from normfuse.parity.verdict import SiteVerdict

# What an input is called that was made in the place of a recorded one.
MADE = "made inputs"


@dataclass(frozen=True, eq=False)
class Site:
    """Both sides of one rewrite, cut out of their models."""

    boundary: Boundary
    before: Piece
    after: Piece

    @property
    def recorded(self) -> tuple[str, ...]:
        """The values that have to be recorded from the original's run."""
        return tuple(dict.fromkeys((*self.before.inputs, *self.after.inputs)))


def cut(original: Model, rewritten: Model, boundary: Boundary) -> Site | SiteVerdict:
    """Cut a rewrite out of both models, or say why it cannot be."""
    try:
        site = _cut(original, rewritten, boundary)
    except CannotExtractError as error:
        return SiteVerdict("inconclusive", detail=str(error))
    foreign = [name for name in site.after.beside if not _is_value(original, name)]
    if foreign:
        return SiteVerdict(
            "inconclusive", detail=f"the replacement reads {foreign[0]!r}, new in the rewritten model"
        )
    return site


def _cut(original: Model, rewritten: Model, boundary: Boundary) -> Site:
    if not boundary.constant:
        return Site(boundary, extract(original, boundary), extract(rewritten, boundary))
    after = stored(rewritten, boundary.constant, boundary.output)
    return Site(boundary, extract_constant(original, boundary.output), after)


def _is_value(model: Model, name: str) -> bool:
    return name in model.inputs or any(
        name in scope.position or name in scope.initializers for scope in model.scopes
    )


@dataclass(frozen=True)
class Certificate:
    """The verdict on a site, and what it may be off by on each recorded input, by the recording's label."""

    verdict: SiteVerdict
    bounds: Mapping[str, float] = field(default_factory=dict)


def certify(site: Site, recordings: Sequence[Variant], settings: Settings) -> Certificate:
    """Run both sides on recorded and made inputs and judge them."""
    if not recordings:
        return Certificate(SiteVerdict("inconclusive", detail="no input could be recorded"))
    rng = np.random.default_rng(settings.seed)
    try:
        sides = Sides.of(site.before, site.after, recordings[0][1], settings)
        refused = _refused(sides, recordings[0])
        if refused:
            return Certificate(SiteVerdict("inconclusive", detail=refused))
        recordings, made = _inputs(site, sides, recordings, rng)
        known = truths(sides, [feed for _, feed in made], site.boundary.reads, rng)
        fed = (*recordings, *made)
        truth = (*(None for _ in recordings), *known)
        judged = [(label, sides.judge(feed, rng, t)) for (label, feed), t in zip(fed, truth, strict=True)]
    except RuntimeRefusalError as error:
        why = who_refuses(site.before, site.after, recordings[0][1], settings, error)
        return Certificate(SiteVerdict("failed", detail=why))
    verdict = conclude(judged)
    if verdict.result == "failed":
        bad = [feed for (_, feed), (_, j) in zip(fed, judged, strict=True) if j.conclusive and not j.holds]
        fault = kernels_fault(site.after, sides, bad, settings, rng)
        return Certificate(replace(verdict, detail="; ".join(filter(None, (verdict.detail, fault)))))
    held = verdict.result in ("equal", "improved")
    return Certificate(verdict, {label: j.allowed for label, j in judged[: len(recordings)]} if held else {})


def _refused(sides: Sides, first: Variant) -> str:
    """Why the original does not take what was made for it, or ""; what was recorded it has taken."""
    label, feed = first
    if label != MADE:
        return ""
    try:
        sides.run_before(feed)
    except RuntimeRefusalError as error:
        return f"the original does not take the inputs that were made for it: {error}"
    return ""


def _inputs(
    site: Site, sides: Sides, recordings: Sequence[Variant], rng: Generator
) -> tuple[Sequence[Variant], list[Variant]]:
    """The recordings to run both sides on, and made inputs; small ones for large linear operators."""
    reads, pieces = site.boundary.reads, (site.before, site.after)
    if sides.normalizes:
        label, sample = recordings[0][0], shrunk(sides, recordings[0][1], reads)
        made = list(variants(sample, reads, pieces, rng))
        return [(label, dict(sample))] if label == MADE else recordings, made
    many = site.before.weight_bytes > MANY_BYTES
    recordings = cropped(sides, distinct(recordings), (SHORT, EXTENT) if many else (EXTENT,))
    made = list(variants(recordings[0][1], reads, pieces, rng))
    if not many or not made:
        return recordings, made
    # Numbers show as much of a large linear operator as recordings, at half the cost.
    return [], made


def conclude(judged: Sequence[tuple[str, Judgement]]) -> SiteVerdict:
    """One verdict from the judgements on all inputs; it shows the input that decided."""
    conclusive = [(label, j) for label, j in judged if j.conclusive]
    if not conclusive:
        return SiteVerdict("inconclusive", detail="no input gives a finite result")
    failed = [(label, j) for label, j in conclusive if not j.holds]
    if failed:
        label, worst = max(failed, key=lambda item: _excess(item[1]))
        return _verdict("failed", worst, f"{label}: {worst.problem}" if worst.problem else label)
    improved = [(label, j) for label, j in conclusive if j.improved]
    if improved:
        label, best = max(improved, key=_gain)
        return replace(_verdict("improved", best, label), bound=max(best.bound, best.error_after))
    label, worst = max(conclusive, key=lambda item: _excess(item[1]))
    return _verdict("equal", worst, label)


def _gain(item: tuple[str, Judgement]) -> tuple[bool, float]:
    """Shows an improvement between two numbers before one from NaN or infinity."""
    judgement = item[1]
    return bool(np.isfinite(judgement.error_before)), judgement.error_before / max(judgement.bound, 1e-300)


def _excess(judgement: Judgement) -> float:
    if judgement.problem:
        return np.inf
    return judgement.error_after / judgement.allowed if judgement.allowed else judgement.error_after


def _verdict(result: Any, judgement: Judgement, detail: str) -> SiteVerdict:
    return SiteVerdict(result, judgement.error_before, judgement.error_after, judgement.allowed, detail)


def describe(verdict: SiteVerdict) -> str:
    """One line for people: the distances to float64 of both sides."""
    return (
        f"{verdict.result}: {verdict.error_before:.1e} from float64 before, {verdict.error_after:.1e} after"
        f" (bound {verdict.bound:.1e}; {verdict.detail})"
    )
