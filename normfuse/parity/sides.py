"""Runs both sides of one rewrite on an input, evaluates the truth, and judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.random import Generator

from normfuse.parity.adversarial import is_normalization
from normfuse.parity.dtypes import is_float, roundoff
from normfuse.parity.extract import Piece
from normfuse.parity.judge import Judgement, judge, sensitivity
from normfuse.parity.model import serialize
from normfuse.parity.noise import nudge_all, nudge_halfway
from normfuse.parity.reference import CannotEvaluateError, Float64, reduction_size
from normfuse.parity.sessions import Reference, Runner, RuntimeRefusalError, Session
from normfuse.parity.settings import Array, Settings

# Below this many elements a random nudge may happen to cancel, so a second one is drawn.
SMALL = 512


@dataclass(frozen=True, eq=False)
class Sides:
    """Both sides of one rewrite, ready to run, and the truth."""

    before: Runner
    after: Runner
    truth: Float64 | None
    output: str
    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    unit: float
    normalizes: bool

    @staticmethod
    def of(old_piece: Piece, new_piece: Piece, feed: Mapping[str, Array], settings: Settings) -> Sides:
        """Sessions for both sides; an original without a kernel is run by the reference evaluator."""
        old, new = old_piece.proto(feed), new_piece.proto(feed)
        # One thread: a pool for each of many small sessions costs more than it gains.
        after = Session(serialize(new), settings, threads=1)
        before: Runner
        try:
            before = Session(serialize(old), settings, threads=1)
        except RuntimeRefusalError:
            before = Reference(old)
        inputs = (old_piece.inputs, new_piece.inputs)
        normalizes = is_normalization((old_piece, new_piece))
        return Sides(before, after, _float64(old), old_piece.output, inputs, _unit(old, feed), normalizes)

    @property
    def weights(self) -> int:
        """How many constants the original computes with."""
        return sum(v.size for v in self.truth.constants.values()) if self.truth else 0

    def judge(self, feed: Mapping[str, Array], rng: Generator) -> Judgement:
        """Both sides on one input."""
        try:
            before = self.run_before(feed)
        except RuntimeRefusalError:
            return Judgement(0, 0, 0, conclusive=False)  # made for a shape that the original does not take
        after = self.run_after(feed)
        if not is_float(before):
            same = before.shape == after.shape and bool((before == after).all())
            return Judgement(0, 0, 0, "" if same else "integer results differ")
        draws = 1 if before.size >= SMALL else 2
        truth, moved, least, terms = self._truth(before, feed, draws, rng)
        return judge(truth, moved, before, after, max(self.unit, roundoff(before.dtype)), terms, least)

    def run_before(self, feed: Mapping[str, Array]) -> Array:
        """The original's result; raises RuntimeRefusalError."""
        return np.asarray(self.before.run({k: feed[k] for k in self.inputs[0]}, [self.output])[self.output])

    def run_after(self, feed: Mapping[str, Array]) -> Array:
        """The replacement's result; raises RuntimeRefusalError."""
        return np.asarray(self.after.run({k: feed[k] for k in self.inputs[1]}, [self.output])[self.output])

    def _truth(
        self, before: Array, feed: Mapping[str, Array], draws: int, rng: Generator
    ) -> tuple[Array, list[Array], float, int]:
        """The float64 result, the same for nudged inputs, a least sensitivity, and the longest sum."""
        given = {k: feed[k] for k in self.inputs[0]}
        if self.truth is not None:
            try:
                return self._in_float64(self.truth, given, draws, rng)
            except CannotEvaluateError:
                pass  # an operator of the piece has no float64 evaluation: its own result stands for it
        again = [self.run_before(nudge_all(given, rng)) for _ in range(draws)]
        return before.astype(np.float64), again, 0.0, 1

    def _in_float64(
        self, truth: Float64, feed: Mapping[str, Array], draws: int, rng: Generator
    ) -> tuple[Array, list[Array], float, int]:
        values = truth.run(feed)
        moved = [self._moved(truth, feed, rng) for _ in range(draws)]
        terms = reduction_size(truth.proto, values)
        least = self._of_one_element(truth, feed, rng) if self.normalizes and terms == 1 else 0.0
        return np.asarray(values[self.output]), moved, least, terms

    def _moved(self, truth: Float64, feed: Mapping[str, Array], rng: Generator) -> Array:
        inputs = {k: nudge_halfway(feed[k], rng) for k in sorted(feed)}
        return truth.output(inputs, truth.nudged(rng))

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


def _float64(proto: onnx.ModelProto) -> Float64 | None:
    try:
        return Float64.of(proto)
    except CannotEvaluateError:
        return None
