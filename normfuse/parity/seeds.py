"""Random operators, given the same seeds in both models, so that what they compute can be compared.

An operator without a `seed` draws from the runtime's own generator, by its place in the graph, which a
rewrite changes. With a seed made from the name of its output, and a new session a run, both draw alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import onnx

from normfuse.parity.model import RANDOM, Model, every_node


def pin(model: Model) -> tuple[Model, tuple[str, ...]]:
    """The model with every random operator seeded, and the names of these operators."""
    found = [node for node in _nodes(model.proto) if _draws(model, node)]
    if not found:
        return model, ()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for node in _nodes(proto):
        if _draws(model, node) and not any(a.name == "seed" for a in node.attribute):
            number = zlib.crc32(node.output[0].encode()) % 9973
            # The one operator whose seed is an integer.
            seed = number if node.op_type == "Dropout" else float(number)
            node.attribute.append(onnx.helper.make_attribute("seed", seed))
    return Model(model.path, proto, edited=True), tuple(node.name or node.output[0] for node in found)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of local functions included."""
    yield from every_node(proto.graph)
    for function in proto.functions:
        yield from every_node(function)


def _draws(model: Model, node: onnx.NodeProto) -> bool:
    """Dropout draws only in training mode, which is its third input: not where that is known to be false."""
    if node.op_type != "Dropout":
        return node.op_type in RANDOM
    if len(node.input) < 3 or not node.input[2]:
        return False
    mode = model.constant(node.input[2])
    return mode is None or bool(model.array(mode).any())
