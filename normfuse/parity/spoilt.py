"""The first node that an optimizer of the runtime spoils.

A model that is refused: the message names the node that the optimizer made, after one that it replaced.
A model that computes something else: the runtime writes down the graph that it made of it. Run as it stands,
with its inner values as outputs, that graph differs from the original at one value first.

    model        Conv -> c -> BatchNormalization -> y -> Relu
    made of it   Conv -> y -> Relu                              y differs: the node 'y' is spoilt
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from normfuse.parity.compare import distance
from normfuse.parity.dtypes import roundoff
from normfuse.parity.model import Model, every_node, names_read
from normfuse.parity.sessions import RuntimeRefusalError, open_variant, open_with_outputs
from normfuse.parity.settings import Array, Feed, Settings
from normfuse.parity.whole import ROUNDOFFS

# Above this, the graph that the runtime writes down would take too much of the disk.
MOST_WEIGHTS = 1 << 30
# Values that are compared at a time.
BATCH = 32
# An optimizer may round otherwise; a mistake is far outside.
TIMES_BOUND = 64.0


def spoilt_node(model: Model, feed: Feed, optimizers: Sequence[str], settings: Settings) -> str:
    """The node and the operators that were made one, or ""; optimizers: those at fault.

    "'y' (Conv, BatchNormalization)": a node goes by the value that it computes where it has no name.
    """
    if not optimizers or model.edited or model.weight_bytes > MOST_WEIGHTS:
        return ""
    named = model.light.copy()
    for node in every_node(named.graph):
        node.name = node.name or next((name for name in node.output if name), node.op_type)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.onnx"
        try:
            open_variant(model, named, settings, "deployed", write=path)
            return _first_spoilt(model, path, feed, settings)
        except RuntimeRefusalError as error:
            return _named_in(str(error), named)


def _named_in(message: str, proto: onnx.ModelProto) -> str:
    """The node whose name, the longest, stands in a message."""
    found = [node for node in every_node(proto.graph) if node.name and node.name in message]
    node = max(found, key=lambda n: len(n.name), default=None)
    return f"{node.name!r} ({node.op_type})" if node is not None else ""


def _first_spoilt(model: Model, path: Path, feed: Feed, settings: Settings) -> str:
    made = Model.load(path)
    computed = {name for node in made.proto.graph.node for name in node.output if name}
    shared = [n for n in model.main.position if n in computed and n not in model.main.constant]
    for i in range(0, len(shared), BATCH):
        batch = shared[i : i + BATCH]
        before = open_with_outputs(model, settings, batch).run(feed, batch)
        after = open_with_outputs(made, settings, batch).run(feed, batch)
        for name in batch:
            if _differs(np.asarray(before[name]), np.asarray(after[name])):
                return _described(model, name, set(shared))
    return ""


def _described(model: Model, name: str, shared: set[str]) -> str:
    """A node, and the operators between it and values that the runtime's graph has as well."""
    nodes, position = model.main.graph.node, model.main.position
    inside, stack = {position[name]}, sorted(names_read(nodes[position[name]]))
    while stack:
        value = stack.pop()
        index = position.get(value)
        if index is not None and index not in inside and value not in shared | model.main.constant:
            inside.add(index)
            stack += sorted(names_read(nodes[index]))
    kinds = dict.fromkeys(nodes[i].op_type for i in sorted(inside))
    return f"{(nodes[position[name]].name or name)!r} ({', '.join(kinds)})"


def _differs(before: Array, after: Array) -> bool:
    if before.shape != after.shape:
        return False  # the same name for another layout
    gap = distance(before, after)
    return bool(gap.mismatch) or gap.relative > TIMES_BOUND * ROUNDOFFS * roundoff(before.dtype)
