"""Runs both sides of one rewrite on an input, evaluates the truth, and judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx
from numpy.random import Generator

from normfuse.parity.adversarial import is_normalization
from normfuse.parity.channels import SAMPLES, SPARE, Channel, channel_axes, samples, worst_channel
from normfuse.parity.dtypes import is_float, roundoff
from normfuse.parity.extract import Piece
from normfuse.parity.judge import Judgement, growth, judge, sensitivity
from normfuse.parity.light import LightModel
from normfuse.parity.memory import limit_of
from normfuse.parity.noise import nudge_all, nudge_halfway
from normfuse.parity.pieces import open_pair
from normfuse.parity.reference import CannotEvaluateError, Float64
from normfuse.parity.sessions import Runner, RuntimeRefusalError
from normfuse.parity.settings import Array, Settings
from normfuse.parity.sums import reduction_size, sum_unit

# Below this many elements a random nudge may happen to cancel, so a second one is drawn.
SMALL = 512
# Constants of more elements than this are not nudged. Where a piece is linear, the inputs that they are
# multiplied with are moved as much: a sum of products moves by sqrt(2) times more where both factors do.
MANY, MANY_LINEAR = 1 << 22, 1 << 16
# What an evaluation in float64 takes for each byte of weights: a copy twice as large, and its products.
FLOAT64_BYTES = 8


@dataclass(frozen=True, eq=False)
class Truth:
    """What one input ought to give.

    value: in float64; moved: the same for nudged inputs; least: a least sensitivity; terms: the longest sum.
    exact: False where the original's own result stands for it. before: the original's result, where known.
    """

    value: Array
    moved: Sequence[Array]
    least: float = 0.0
    terms: int = 1
    exact: bool = True
    before: Array | None = None


@dataclass(frozen=True, eq=False)
class Sides:
    """Both sides of one rewrite, ready to run, and the truth.

    unit: unit roundoff of the coarsest type that the original computes in; sum_unit: of that it sums in.
    """

    before: Runner
    after: Runner
    exact: Float64 | None
    new: LightModel
    output: str
    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    unit: float
    sum_unit: float
    normalizes: bool

    @staticmethod
    def of(old_piece: Piece, new_piece: Piece, feed: Mapping[str, Array], settings: Settings) -> Sides:
        """Sessions for both sides; raises RuntimeRefusalError where the replacement is refused."""
        old = old_piece.light(feed)
        new = new_piece.light(feed)
        before, after = open_pair(old, new, settings)
        small = FLOAT64_BYTES * old_piece.weight_bytes <= limit_of(settings)
        exact = _float64(old) if small else None
        inputs = (old_piece.inputs, new_piece.inputs)
        normalizes = is_normalization((old_piece, new_piece))
        unit = _unit(old.proto, feed)
        finest = sum_unit(old.proto, unit)
        return Sides(before, after, exact, new, old_piece.output, inputs, unit, finest, normalizes)

    def judge(self, feed: Mapping[str, Array], rng: Generator, known: Truth | None = None) -> Judgement:
        """Both sides on one input; known: its truth, where that has been evaluated already."""
        try:
            before = self.run_before(feed) if known is None or known.before is None else known.before
        except RuntimeRefusalError:
            return Judgement(0, 0, 0, conclusive=False)  # made for a shape that the original does not take
        after = self.run_after(feed)
        if not is_float(before):
            same = before.shape == after.shape and bool((before == after).all())
            return Judgement(0, 0, 0, "" if same else "integer results differ")
        truth = known or self._truth(before, feed, rng)
        unit = max(self.unit, roundoff(before.dtype))
        finer = self.sum_unit / unit
        found = judge(truth.value, truth.moved, before, after, unit, truth.terms, truth.least, finer)
        if not (found.holds and found.conclusive and truth.exact) or truth.least:
            return found
        if not self._has_channels(truth):
            return found
        wrong = self._wrong_channel(truth, after, feed, unit, growth(truth.terms, finer), rng)
        return replace(found, problem=str(wrong)) if wrong else found

    def _has_channels(self, truth: Truth) -> bool:
        """Whether channels can be asked one by one: of an affine alone one may be nothing but rounding."""
        return self.normalizes or truth.terms > 1

    def _wrong_channel(
        self, truth: Truth, after: Array, feed: Mapping[str, Array], unit: float, most: float, rng: Generator
    ) -> Channel | None:
        """A channel in which the replacement says something else, see channels.py."""
        axes = channel_axes(after.ndim, self.spatial) if feed else tuple(range(after.ndim))
        value, moved = truth.value, list(truth.moved)
        if not worst_channel(value, moved, after.astype(np.float64), unit, most, axes):
            return None
        try:
            if self.exact is None or self.exact_after is None:
                return None
            says = self.exact_after.output({k: feed[k] for k in self.inputs[1]})
            if says.shape != value.shape or not worst_channel(value, moved, says, unit, most, axes):
                return None
            while samples(value.shape, axes, len(moved)) < SAMPLES:
                moved.append(self._moved_anew(self.exact, feed, value, rng))
        except CannotEvaluateError:
            return None
        return worst_channel(value, moved, says, unit, SPARE * most, axes)

    @cached_property
    def exact_after(self) -> Float64 | None:
        """The replacement in float64, or None where that cannot be had."""
        return _float64(self.new)

    @cached_property
    def spatial(self) -> bool:
        """Whether the site is about images with the channels first."""
        nodes = (*self.exact.proto.graph.node, *self.new.proto.graph.node) if self.exact else ()
        return any(node.op_type in ("Conv", "ConvTranspose") for node in nodes)

    def run_before(self, feed: Mapping[str, Array]) -> Array:
        """The original's result; raises RuntimeRefusalError."""
        return np.asarray(self.before.run({k: feed[k] for k in self.inputs[0]}, [self.output])[self.output])

    def run_after(self, feed: Mapping[str, Array]) -> Array:
        """The replacement's result; raises RuntimeRefusalError."""
        return np.asarray(self.after.run({k: feed[k] for k in self.inputs[1]}, [self.output])[self.output])

    def in_float64(self, feed: Mapping[str, Array], draws: int, rng: Generator) -> Truth:
        """The truth by an evaluation in float64; raises CannotEvaluateError where there is none."""
        if self.exact is None:
            raise CannotEvaluateError("no evaluation in float64")
        given = {k: feed[k] for k in self.inputs[0]}
        values = self.exact.run(given)
        value = np.asarray(values[self.output])
        moved = [self._enlarged(value, self._moved(self.exact, given, rng)) for _ in range(draws)]
        terms = reduction_size(self.exact.proto, values)
        least = self._of_one_element(self.exact, given, rng) if self.normalizes and terms == 1 else 0.0
        return Truth(value, moved, least, terms)

    def _truth(self, before: Array, feed: Mapping[str, Array], rng: Generator) -> Truth:
        draws = 1 if before.size >= SMALL else 2
        try:
            return self.in_float64(feed, draws, rng)
        except CannotEvaluateError:  # then the original's own result stands for it
            again = [self.run_before(nudge_all(feed, rng)) for _ in range(draws)]
            return Truth(before.astype(np.float64), again, exact=False)

    def _moved_anew(self, exact: Float64, feed: Mapping[str, Array], value: Array, rng: Generator) -> Array:
        """One more draw, of the constants too."""
        exact.forget_nudged()
        return self._enlarged(value, self._moved(exact, {k: feed[k] for k in self.inputs[0]}, rng))

    def _enlarged(self, value: Array, moved: Array) -> Array:
        """By as much as constants would add that are too many to be nudged."""
        assert self.exact is not None
        many = not self.normalizes and any(c.size > MANY_LINEAR for c in self.exact.constants.values())
        wide = value.astype(np.float64)
        return wide + 2**0.5 * (moved.astype(np.float64) - wide) if many else moved

    def _moved(self, exact: Float64, feed: Mapping[str, Array], rng: Generator) -> Array:
        inputs = {k: nudge_halfway(feed[k], rng) for k in sorted(feed)}
        return exact.output(inputs, exact.nudged(rng, MANY if self.normalizes else MANY_LINEAR))

    def _of_one_element(self, exact: Float64, feed: Mapping[str, Array], rng: Generator) -> float:
        """The sensitivity of statistics over a single element.

        The mean of one element moves with it, so a nudge shows nothing; yet a kernel rounds the two apart.
        Two equal elements, nudged each on its own, show it.
        """
        twice = {k: np.tile(v, [2 if size == 1 else 1 for size in v.shape]) for k, v in feed.items()}
        try:
            return sensitivity(exact.output(twice), [self._moved(exact, twice, rng)])
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


def _float64(piece: LightModel) -> Float64 | None:
    try:
        return Float64.of(piece.proto, piece.weights)
    except CannotEvaluateError:
        return None
