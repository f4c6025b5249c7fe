"""The original as it is run for its baseline: one session that also hands out what the sites read.

    plain       x -> model -> y
    recorder    x -> model -> y, and h0, h1 … that the sites read        tables may be given at a run

At ORT_DISABLE_ALL further outputs change nothing, and neither do weights that a run may override. So one
session and one run of each input do for the baseline and for the certificates, and the noise floor of a model
that reads token ids needs no session of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto

from normfuse.parity.model import Model
from normfuse.parity.roles import role_of
from normfuse.parity.sessions import Runner, RuntimeRefusalError, open_model, open_with_outputs
from normfuse.parity.settings import Array, Feed, Settings
from normfuse.parity.symbols import parse, read_shapes

# The made inputs are three; of the user's own, the first few stand for the rest.
MOST_RECORDINGS = 3
UNKNOWN_SIZE = 64
# Below this version of the IR no initializer can be overridden.
FIRST_WITH_DEFAULTS = 4


@dataclass(eq=False)
class Recorder:
    """A runner of the original that keeps what its sites read.

    names: the values to keep; tables: weights that a run may override; seconds: what opening took.
    """

    model: Model
    runner: Runner
    names: Sequence[str] = ()
    tables: frozenset[str] = frozenset()
    memory: int = 0
    seconds: float = 0.0
    outputs: tuple[str, ...] = field(init=False)
    _kept: list[tuple[Feed, Mapping[str, Array]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outputs = self.model.outputs

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Run once; where no outputs are named, what the sites read is kept."""
        if names is not None or not self._records(feed):
            return self.runner.run(feed, self.outputs if names is None else names)
        wanted = dict.fromkeys((*self.outputs, *self.names))
        try:
            values = self.runner.run(feed, list(wanted))
        except RuntimeRefusalError:
            plain = self.runner.run(feed, self.outputs)
            self.names = ()  # it is one of the values that the runtime cannot hand out
            return plain
        self._kept.append((feed, {name: values[name] for name in self.names}))
        return {name: values[name] for name in self.outputs}

    def recorded(self, feed: Feed) -> Mapping[str, Array] | None:
        """What the sites read in the run on `feed`, if that was kept."""
        return next((values for fed, values in self._kept if fed is feed), None)

    def forget(self) -> None:
        """Give the memory of the recordings back."""
        self._kept.clear()

    def _records(self, feed: Feed) -> bool:
        if not self.names or len(self._kept) >= MOST_RECORDINGS:
            return False
        sizes = estimates(self.runner, sizes_of(self.model, feed))
        return sum(sizes.get(name, 0) for name in self.names) * MOST_RECORDINGS <= self.memory


def open_recorder(model: Model, names: Sequence[str], settings: Settings) -> Recorder:
    """The original, ready to be run and recorded; raises RuntimeRefusalError where it does not load."""
    started = time.perf_counter()
    tables = lookup_tables(model)
    if names or tables:
        try:
            runner = open_with_outputs(model, settings, names, tables)
            took = time.perf_counter() - started
            return Recorder(model, runner, tuple(names), tables, settings.record_memory, took)
        except RuntimeRefusalError:
            started = time.perf_counter()
    return Recorder(model, open_model(model, settings), seconds=time.perf_counter() - started)


def lookup_tables(model: Model) -> frozenset[str]:
    """The embedding tables that integer inputs look up, as far as a run may override them."""
    if model.proto.ir_version < FIRST_WITH_DEFAULTS:
        return frozenset()
    found = {role_of(model, name, np.dtype(np.int64)).table for name in model.inputs}
    known = model.main.initializers
    return frozenset(
        name for name in found if name in known and known[name].data_type != TensorProto.BFLOAT16
    )


def sizes_of(model: Model, feed: Feed) -> dict[str, int]:
    """The dynamic dimensions of the inputs, as a feed has them."""
    found: dict[str, int] = {}
    for name, dims in read_shapes(model.inputs).sizes.items():
        for dim, size in zip(dims, np.shape(feed.get(name, ())), strict=False):
            if len(dim.symbols) == 1 and dim.value({dim.symbols[0]: size}) == size:
                found.setdefault(dim.symbols[0], size)
    return found


def estimates(runner: Any, known: Mapping[str, int]) -> dict[str, int]:
    """Bytes of each output, from the shapes that the runtime infers; unknown dimensions are guessed."""
    found: dict[str, int] = {}
    for name, shape in runner.shapes().items():
        dims = [d if isinstance(d, int) else _guess(d, known) for d in shape]
        found[name] = int(np.prod(dims, dtype=np.float64)) * 4
    return found


def _guess(dim: str | None, known: Mapping[str, int]) -> int:
    size = parse(dim or "?")
    return size.value(known) if all(name in known for name in size.symbols) else UNKNOWN_SIZE
