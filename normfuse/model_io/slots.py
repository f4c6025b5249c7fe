"""Every place of a model that holds a tensor: initializers and tensor attributes, functions included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import onnx_ir as ir

from normfuse.graph.scopes import bodies


class Slot(NamedTuple):
    """One tensor, and how to put another in its place.

    initializer: False for an attribute (the value of a Constant node).
    """

    tensor: ir.TensorProtocol
    put: Callable[[ir.TensorProtocol], None]
    initializer: bool


def slots(model: ir.Model) -> Iterator[Slot]:
    """All tensors of the model, in the order in which they are stored."""
    yield from _slots(model.graph)
    for function in model.functions.values():
        yield from _slots(function)


def _slots(graph: ir.Graph | ir.Function) -> Iterator[Slot]:
    """Those of a graph, then those of the bodies in it; every node is looked at once."""
    if isinstance(graph, ir.Graph):
        yield from _initializers(graph)
    inner: list[ir.Graph] = []
    for node in graph:
        attributes = node.attributes.data
        if not attributes:
            continue
        for name, attribute in list(attributes.items()):
            if attribute.type is ir.AttributeType.TENSOR and not attribute.is_ref():
                yield _attribute(node, name, attribute)
        inner += bodies(node)
    for body in inner:
        yield from _slots(body)


def _initializers(graph: ir.Graph) -> Iterator[Slot]:
    for value in graph.initializers.values():
        if value.const_value is not None:

            def put(tensor: ir.TensorProtocol, value: ir.Value = value) -> None:
                value.const_value = tensor

            yield Slot(value.const_value, put, initializer=True)


def _attribute(node: ir.Node, name: str, attribute: ir.Attr) -> Slot:
    def put(tensor: ir.TensorProtocol) -> None:
        node.attributes[name] = ir.AttrTensor(name, tensor)

    return Slot(attribute.as_tensor(), put, initializer=False)
