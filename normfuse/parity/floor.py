"""The noise floor of a whole model, by running the original on nudged inputs, and then on nudged weights.

First every float input moves by one ulp; where there is none (token ids), the tables that the inputs look up.
That is cheap and strict. Where a model disagrees by more, all its weights are moved as well: rewriting rounds
folded weights once more and computes every layer with other roundings, and so far do such roundings carry.
Where it still disagrees, the results of all certified rewrites are moved by what their certificates allow.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.random import Generator
from onnx import TensorProto, numpy_helper

from normfuse.parity.compare import Distance, distance
from normfuse.parity.dtypes import is_float, roundoff
from normfuse.parity.inputs import Trial
from normfuse.parity.model import FLOATS, Model, constant_of
from normfuse.parity.noise import lengths, nudge, nudge_all, nudge_by
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
    overridable: weights that `runner` takes other values for at a run.
    certified: for each trial the bounds of the sites that hold, by the name of their output.
    """

    model: Model
    runner: Runner
    settings: Settings
    proto: onnx.ModelProto | None = None
    overridable: frozenset[str] = frozenset()
    certified: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    _kept: dict[tuple[str, bool], dict[str, Distance]] = field(default_factory=dict)
    _runners: dict[bool, Runner] = field(default_factory=dict)
    _nudged_values: dict[str, Array] = field(default_factory=dict)

    def of(self, trial: Trial, deep: bool = False) -> dict[str, Distance]:
        """The distance of each output between a trial and its nudged copy; deep: all weights too."""
        key = trial.label, deep
        if key not in self._kept:
            self._kept[key] = self._measure(trial, deep)
        return self._kept[key]

    def of_half(self, trial: Trial) -> dict[str, Distance]:
        """The same for inputs that move by one ulp of the half precision that the model computes in.

        The runtime keeps half-precision values in float32 where the next operator takes them so. Whether it
        does hangs on what stands beside them, and so on a rewrite; each place is one such rounding.
        """
        kinds = map(onnx.helper.tensor_dtype_to_np_dtype, self.model.halves)
        unit = max(map(roundoff, kinds), default=0.0)
        if not unit:
            return {}
        rng = np.random.default_rng(self.settings.seed + 4)
        feed = {k: nudge_by(v, unit, rng) for k, v in trial.feed.items()}
        try:
            moved = self.runner.run(feed, list(trial.baseline))
        except RuntimeRefusalError:
            return {}
        return {k: distance(np.asarray(v), np.asarray(moved[k])) for k, v in trial.baseline.items()}

    def of_sites(self, trial: Trial) -> dict[str, Distance]:
        """The distance of each output where every certified rewrite is off by its bound."""
        bounds = self.certified.get(trial.label, {})
        return site_noise(self.model, bounds, trial, self.settings) if bounds else {}

    def _measure(self, trial: Trial, deep: bool) -> dict[str, Distance]:
        rng = np.random.default_rng(self.settings.seed + 1)
        runner, feed = self.runner, nudge_all(trial.feed, rng)
        tables = set() if deep or _has_floats(trial) else _tables(self.model)
        if tables and tables <= self.overridable:
            feed.update(self._nudged_tables(tables))
        elif deep or not _has_floats(trial):
            runner = self._nudged(tables or None)
        try:
            moved = runner.run(feed, list(trial.baseline))
        except RuntimeRefusalError:
            return {}
        return {k: distance(np.asarray(v), np.asarray(moved[k])) for k, v in trial.baseline.items()}

    def _nudged_tables(self, names: Iterable[str]) -> dict[str, Array]:
        if not self._nudged_values:
            rng = np.random.default_rng(self.settings.seed + 2)
            for name in sorted(names):
                self._nudged_values[name] = nudge(self._value(name), rng)
        return self._nudged_values

    def _value(self, name: str) -> Array:
        beside = self.model.light.weights.get(name)
        return beside if beside is not None else self.model.array(self.model.main.initializers[name])

    def _nudged(self, names: Container[str] | None) -> Runner:
        """A session with these weights nudged, None for all; the plain one where that is not possible."""
        everything = names is None
        if everything not in self._runners:
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


def _tables(model: Model) -> set[str]:
    """The embedding tables that integer inputs look up, if there are any."""
    found = {role_of(model, name, np.dtype(np.int64)).table for name in model.inputs}
    return {name for name in found if model.constant(name) is not None}
