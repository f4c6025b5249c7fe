"""Times of several models side by side: in turns, at ORT_ENABLE_ALL, on one thread.

The turns and the ratios are those of `normfuse bench`. Two things differ. What counts is the processor's time
of the one thread, so that whatever else the machine does is not in it; and the sessions are made anew several
times, for two sessions of one model can differ by a few percent, by where their buffers happen to lie.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from normfuse.bench.ratios import Ratio, paired
from normfuse.bench.turns import take_turns

Array = NDArray[np.generic]
Feed = Mapping[str, Array]

TURN = 0.006  # seconds


@dataclass(frozen=True)
class Plan:
    """How long to measure: sessions are made anew `batches` times, each time for `rounds` rounds."""

    batches: int = 4
    rounds: int = 12


@dataclass(frozen=True)
class Times:
    """Seconds of one run of each model, one figure for each round."""

    seconds: Mapping[str, Sequence[float]]

    def of(self, name: str) -> float:
        """The median of a model."""
        return statistics.median(self.seconds[name])

    def ratio(self, slow: str, fast: str) -> Ratio:
        """`slow` over `fast`, round by round: above 1 the second is faster."""
        return paired(self.seconds[slow], self.seconds[fast])


def options() -> onnxruntime.SessionOptions:
    """As users load a model, on one thread."""
    made = onnxruntime.SessionOptions()
    made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    made.intra_op_num_threads = made.inter_op_num_threads = 1
    made.log_severity_level = 4
    return made


class Runner:
    """A session with its inputs in place, so that a call is the model's own run and no more."""

    def __init__(self, model: bytes, feed: Feed) -> None:
        self.session = onnxruntime.InferenceSession(model, options(), providers=["CPUExecutionProvider"])
        self.outputs = [value.name for value in self.session.get_outputs()]
        self.feed = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}

    def __call__(self) -> list[onnxruntime.OrtValue]:
        return list(self.session.run_with_ort_values(self.outputs, self.feed))

    def values(self) -> list[Array]:
        """What the model computes."""
        return [value.numpy() for value in self()]


def measure(models: Mapping[str, bytes], feed: Feed, plan: Plan) -> Times:
    """Let the models take turns on the same inputs."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    random = np.random.default_rng(0)
    for _ in range(plan.batches):
        names = [str(name) for name in random.permutation(list(models))]
        runners = [Runner(models[name], feed) for name in names]
        turns = take_turns(runners, 0.0, turn=TURN, least=plan.rounds, clock=time.thread_time)
        for name, times in zip(names, turns, strict=True):
            seconds[name] += times
    return Times(seconds)
