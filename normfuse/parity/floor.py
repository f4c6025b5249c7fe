"""The noise floor of a whole model, by running the original on nudged inputs, and then on nudged weights.

First every float input moves by one ulp; where there is none (token ids), the tables that the inputs look up.
That is cheap and strict. Where a model disagrees by more, all its weights are moved as well: rewriting rounds
folded weights once more and computes every layer with other roundings, and so far do such roundings carry.
Where it still disagrees, the results of all certified rewrites are moved by what their certificates allow.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.random import Generator
from onnx import TensorProto, numpy_helper

from normfuse.parity.compare import Distance, distance
from normfuse.parity.dtypes import is_float
from normfuse.parity.inputs import Trial
from normfuse.parity.model import FLOATS, Model, constant_of
from normfuse.parity.noise import lengths, nudge, nudge_all
from normfuse.parity.propagate import site_noise
from normfuse.parity.roles import role_of
from normfuse.parity.sessions import Runner, RuntimeRefusalError, open_variant
from normfuse.parity.settings import Array, Settings

# Above this, nudging all weights would need more memory than a check may take.
MOST_WEIGHTS = 2 << 30


@dataclass(eq=False)
class Floor:
    """How far each output of the original moves, kept for each trial.

    proto: what `runner` runs, where that is not the model itself.
    certified: for each trial the bounds of the sites that hold, by the name of their output.
    """

    model: Model
    runner: Runner
    settings: Settings
    proto: onnx.ModelProto | None = None
    certified: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    _kept: dict[tuple[str, bool], dict[str, Distance]] = field(default_factory=dict)
    _runners: dict[bool, Runner] = field(default_factory=dict)

    def of(self, trial: Trial, deep: bool = False) -> dict[str, Distance]:
        """The distance of each output between a trial and its nudged copy; deep: all weights too."""
        key = trial.label, deep
        if key not in self._kept:
            self._kept[key] = self._measure(trial, deep)
        return self._kept[key]

    def of_sites(self, trial: Trial) -> dict[str, Distance]:
        """The distance of each output where every certified rewrite is off by its bound."""
        bounds = self.certified.get(trial.label, {})
        return site_noise(self.model, bounds, trial, self.settings) if bounds else {}

    def _measure(self, trial: Trial, deep: bool) -> dict[str, Distance]:
        runner = self._nudged(deep) if deep or not _has_floats(trial) else self.runner
        rng = np.random.default_rng(self.settings.seed + 1)
        try:
            moved = runner.run(nudge_all(trial.feed, rng), list(trial.baseline))
        except RuntimeRefusalError:
            return {}
        return {k: distance(np.asarray(v), np.asarray(moved[k])) for k, v in trial.baseline.items()}

    def _nudged(self, everything: bool) -> Runner:
        """A session with nudged weights or lookup tables; the plain one where that is not possible."""
        if everything not in self._runners:
            names = None if everything else _tables(self.model)
            try:
                self._runners[everything] = self._open(names)
            except RuntimeRefusalError:
                self._runners[everything] = self.runner
        return self._runners[everything]

    def _open(self, names: Container[str] | None) -> Runner:
        """The weights beside a light copy are replaced, those in an external file overridden."""
        rng = np.random.default_rng(self.settings.seed + 2)
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto or self.model.light.proto)
        fixed = lengths(proto)
        for tensor, name in _inside(proto):
            if name not in fixed and (names is None or name in names):
                tensor.CopyFrom(numpy_helper.from_array(nudge(self.model.array(tensor), rng), tensor.name))
        beside = {
            k: nudge(v, rng) if names is None or k in names else v
            for k, v in self.model.light.weights.items()
        }
        overrides = self._external(names, rng)
        return open_variant(self.model, proto, self.settings, weights=beside, overrides=overrides)

    def _external(self, names: Container[str] | None, rng: Generator) -> dict[str, Array]:
        tensors = [t for t in self.model.main.initializers.values() if t.data_location == t.EXTERNAL]
        wanted = [t for t in tensors if _is_weight(t) and (names is None or t.name in names)]
        if sum(int(np.prod(t.dims, dtype=np.int64)) * 4 for t in wanted) > MOST_WEIGHTS:
            return {}
        return {t.name: np.ascontiguousarray(nudge(self.model.array(t), rng)) for t in wanted}


def _inside(proto: onnx.ModelProto) -> Iterator[tuple[TensorProto, str]]:
    """Weights that the model holds itself, with their names: small initializers and Constant nodes."""
    for tensor in proto.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL and _is_weight(tensor):
            yield tensor, tensor.name
    for node in proto.graph.node:
        constant = constant_of(node)
        if constant is not None and _is_weight(constant):
            yield constant, node.output[0]


def _is_weight(tensor: TensorProto) -> bool:
    """Single numbers are epsilons and exponents; bfloat16 cannot be handed over to the runtime."""
    several = int(np.prod(tensor.dims, dtype=np.int64)) > 1
    return several and tensor.data_type in FLOATS and tensor.data_type != TensorProto.BFLOAT16


def _has_floats(trial: Trial) -> bool:
    return any(is_float(np.asarray(value)) and np.any(value) for value in trial.feed.values())


def _tables(model: Model) -> Container[str] | None:
    """The embedding tables that integer inputs look up; None, which is all weights, where there are none."""
    found = {role_of(model, name, np.dtype(np.int64)).table for name in model.inputs}
    tables = {name for name in found if model.constant(name) is not None}
    return tables or None
