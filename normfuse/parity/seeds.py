"""Random operators, given the same seeds in both models, so that what they compute can be compared.

An operator without a `seed` draws from the runtime's own generator, by its place in the graph, which a
rewrite changes. With a seed made from the name of its output, and a new session a run, both draw alike.
"""

from __future__ import annotations

import zlib

import onnx

from normfuse.parity.model import RANDOM, Model, every_node

SEEDED = RANDOM | {"Dropout"}


def pin(model: Model) -> tuple[Model, tuple[str, ...]]:
    """The model with every random operator seeded, and the names of these operators."""
    found = [node for node in every_node(model.proto.graph) if _draws(node)]
    if not found:
        return model, ()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for node in every_node(proto.graph):
        if _draws(node) and not any(a.name == "seed" for a in node.attribute):
            node.attribute.append(
                onnx.helper.make_attribute("seed", float(zlib.crc32(node.output[0].encode()) % 9973))
            )
    return Model(model.path, proto, edited=True), tuple(node.name or node.output[0] for node in found)


def _draws(node: onnx.NodeProto) -> bool:
    """Dropout draws only in training mode, which is its third input."""
    return node.op_type in SEEDED and (node.op_type != "Dropout" or len(node.input) > 2)
