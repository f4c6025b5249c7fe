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
import onnx
from numpy.random import Generator

from normfuse.parity.adversarial import Variant, is_normalization, variants
from normfuse.parity.extract import CannotExtractError, Piece, extract
from normfuse.parity.judge import Judgement, judge, sensitivity
from normfuse.parity.model import Model, serialize
from normfuse.parity.noise import nudge_all, nudge_halfway, roundoff
from normfuse.parity.reference import CannotEvaluateError, Float64, is_float, reduction_size
from normfuse.parity.sessions import Reference, Runner, RuntimeRefusalError, Session
from normfuse.parity.settings import Array, Boundary, Settings
from normfuse.parity.verdict import SiteVerdict

# Spatial extent that a recorded input of a linear operator is cut to: two borders and an interior.
CROP = 12
# Below this many elements a random nudge may happen to cancel, so a second one is drawn.
SMALL = 512


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
        site = Site(boundary, extract(original, boundary), extract(rewritten, boundary))
    except CannotExtractError as error:
        return SiteVerdict("inconclusive", detail=str(error))
    foreign = [name for name in site.after.beside if not _is_value(original, name)]
    if foreign:
        return SiteVerdict(
            "inconclusive", detail=f"the replacement reads {foreign[0]!r}, new in the rewritten model"
        )
    return site


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
    pieces = (site.before, site.after)
    recordings = list(recordings)
    if not is_normalization(pieces):
        recordings = _cropped(site, recordings, settings)
    try:
        bench = Bench.of(site, recordings[0][1], settings)
        made = variants(recordings[0][1], site.boundary.reads, pieces, rng)
        judged = [(label, bench.judge(feed, rng)) for label, feed in (*recordings, *made)]
    except RuntimeRefusalError as error:
        return Certificate(SiteVerdict("failed", detail=f"the replacement does not run: {error}"))
    verdict = conclude(judged)
    held = verdict.result in ("equal", "improved")
    return Certificate(verdict, {label: j.allowed for label, j in judged[: len(recordings)]} if held else {})


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
        return replace(_verdict("improved", best, label), bound=best.bound)
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


@dataclass(frozen=True, eq=False)
class Bench:
    """Everything one site is run with."""

    before: Runner
    after: Runner
    truth: Float64 | None
    output: str
    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    unit: float
    normalizes: bool

    @staticmethod
    def of(site: Site, feed: Mapping[str, Array], settings: Settings) -> Bench:
        """Sessions for both sides; an original without a kernel is run by the reference evaluator."""
        old, new = site.before.proto(feed), site.after.proto(feed)
        # One thread: a pool for each of many small sessions costs more than it gains.
        after = Session(serialize(new), settings, threads=1)
        before: Runner
        try:
            before = Session(serialize(old), settings, threads=1)
        except RuntimeRefusalError:
            before = Reference(old)
        try:
            truth = Float64.of(old)
        except CannotEvaluateError:
            truth = None
        inputs = (site.before.inputs, site.after.inputs)
        normalizes = is_normalization((site.before, site.after))
        return Bench(before, after, truth, site.boundary.output, inputs, _unit(old, feed), normalizes)

    def judge(self, feed: Mapping[str, Array], rng: Generator) -> Judgement:
        """Both sides on one input."""
        try:
            before = self._run(self.before, 0, feed)
        except RuntimeRefusalError:
            return Judgement(0, 0, 0, conclusive=False)  # made for a shape that the original does not take
        after = self._run(self.after, 1, feed)
        if not is_float(before):
            same = before.shape == after.shape and bool((before == after).all())
            return Judgement(0, 0, 0, "" if same else "integer results differ")
        draws = 1 if before.size >= SMALL else 2
        truth, moved, least, terms = self._truth(before, feed, draws, rng)
        return judge(truth, moved, before, after, max(self.unit, roundoff(before.dtype)), terms, least)

    def _run(self, runner: Runner, side: int, feed: Mapping[str, Array]) -> Array:
        return np.asarray(runner.run({k: feed[k] for k in self.inputs[side]}, [self.output])[self.output])

    def _truth(
        self, before: Array, feed: Mapping[str, Array], draws: int, rng: Generator
    ) -> tuple[Array, list[Array], float, int]:
        """The float64 result, the same for nudged inputs, a least sensitivity, and the longest sum."""
        given = {k: feed[k] for k in self.inputs[0]}
        if self.truth is None:
            again = [self._run(self.before, 0, nudge_all(given, rng)) for _ in range(draws)]
            return before.astype(np.float64), again, 0.0, 1
        values = self.truth.run(given)
        moved = [self._moved(self.truth, given, rng) for _ in range(draws)]
        terms = reduction_size(self.truth.proto, values)
        least = self._of_one_element(self.truth, given, rng) if self.normalizes and terms == 1 else 0.0
        return np.asarray(values[self.output]), moved, least, terms

    def _moved(self, truth: Float64, feed: Mapping[str, Array], rng: Generator) -> Array:
        inputs = {k: nudge_halfway(v, rng) for k, v in feed.items()}
        return truth.output(inputs, {k: nudge_halfway(v, rng) for k, v in truth.constants.items()})

    def _of_one_element(self, truth: Float64, feed: Mapping[str, Array], rng: Generator) -> float:
        """The sensitivity of statistics over a single element.

        The mean of one element moves with it, so a nudge shows nothing; yet a kernel rounds the two apart.
        Two equal elements, nudged each on its own, show it.
        """
        twice = {k: np.tile(v, [2 if size == 1 else 1 for size in v.shape]) for k, v in feed.items()}
        try:
            exact = truth.output(twice)
            return sensitivity(exact, [self._moved(truth, twice, rng)])
        except CannotEvaluateError:
            return 0.0  # the piece is made for this one shape


def _unit(proto: onnx.ModelProto, feed: Mapping[str, Array]) -> float:
    """Unit roundoff of the coarsest type that the original computes in."""
    units = [roundoff(value.dtype) for value in feed.values() if is_float(value)]
    for node in proto.graph.node:
        if node.op_type == "Cast":
            target = next(a.i for a in node.attribute if a.name == "to")
            units.append(roundoff(onnx.helper.tensor_dtype_to_np_dtype(target)))
    return max(units, default=0.0)


def _cropped(site: Site, recordings: Sequence[Variant], settings: Settings) -> list[Variant]:
    """Recorded images cut to a corner, where both sides accept that: a convolution is the same everywhere."""
    small = [(label, {k: _corner(v) for k, v in feed.items()}) for label, feed in recordings]
    if all(small[i][1][k].shape == v.shape for i, (_, f) in enumerate(recordings) for k, v in f.items()):
        return list(recordings)
    try:
        bench = Bench.of(site, small[0][1], settings)
        for _, feed in small:
            for side, runner in enumerate((bench.before, bench.after)):
                runner.run({k: feed[k] for k in bench.inputs[side]}, [bench.output])
    except RuntimeRefusalError:
        return list(recordings)
    return small


def _corner(array: Array) -> Array:
    if array.ndim < 3 or not is_float(array):
        return array
    keep = (slice(0, 1), slice(None), *(slice(0, CROP) for _ in array.shape[2:]))
    return np.ascontiguousarray(array[keep])


def describe(verdict: SiteVerdict) -> str:
    """One line for people: the distances to float64 of both sides."""
    return (
        f"{verdict.result}: {verdict.error_before:.1e} from float64 before, {verdict.error_after:.1e} after"
        f" (bound {verdict.bound:.1e}; {verdict.detail})"
    )
