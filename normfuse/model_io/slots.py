"""Every place of a model that holds a tensor: initializers and tensor attributes, functions included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from normfuse.graph.scopes import graphs, inner


@dataclass(frozen=True)
class Slot:
    """One tensor, and how to put another in its place.

    initializer: False for an attribute (the value of a Constant node).
    """

    tensor: ir.TensorProtocol
    put: Callable[[ir.TensorProtocol], None]
    initializer: bool


def slots(model: ir.Model) -> Iterator[Slot]:
    """All tensors of the model, in the order in which they are stored."""
    for graph in graphs(model):
        yield from _initializers(graph)
        yield from _attributes(graph)
    for function in model.functions.values():
        yield from _attributes(function)
        for graph in inner(function):
            yield from _initializers(graph)
            yield from _attributes(graph)


def _initializers(graph: ir.Graph) -> Iterator[Slot]:
    for value in graph.initializers.values():
        if value.const_value is not None:

            def put(tensor: ir.TensorProtocol, value: ir.Value = value) -> None:
                value.const_value = tensor

            yield Slot(value.const_value, put, initializer=True)


def _attributes(nodes: Iterable[ir.Node]) -> Iterator[Slot]:
    for node in nodes:
        for name, attribute in list(node.attributes.data.items()):
            if attribute.type is not ir.AttributeType.TENSOR or attribute.is_ref():
                continue

            def put(tensor: ir.TensorProtocol, node: ir.Node = node, name: str = name) -> None:
                node.attributes[name] = ir.AttrTensor(name, tensor)

            yield Slot(attribute.as_tensor(), put, initializer=False)
