"""Models without their weights, which stand beside them: variants and pieces of a model need not copy them.

model        initializers with their data inside, or in an external file
light        the same, marked as external data; and the data as arrays, of which the runtime takes views
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, numpy_helper

from normfuse.parity.settings import Array

# Weights of at least so many bytes stand beside.
LARGE = 4096
# Types that numpy and the runtime hold alike.
SHARED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT8, TensorProto.UINT8,
          TensorProto.INT32, TensorProto.INT64)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LightModel:
    """A model whose larger weights stand beside it.

    weights: those taken out, by name; in `proto` they are marked as external data.
    """

    proto: onnx.ModelProto
    weights: Mapping[str, Array]

    @staticmethod
    def of(proto: onnx.ModelProto) -> LightModel:
        """Take the weights out; what lies in an external file already is left there."""
        light = onnx.ModelProto()
        copy_fields(proto, light, "graph")
        copy_fields(proto.graph, light.graph, "initializer")
        read = set(_names_read(proto.graph))
        inside = {
            tensor.name: np.asarray(numpy_helper.to_array(tensor))
            for tensor in proto.graph.initializer
            if tensor.data_location != TensorProto.EXTERNAL
            and tensor.HasField("raw_data")
            and is_large(tensor)
            and tensor.name in read  # else the runtime drops it, and refuses its values
        }
        add_initializers(light.graph, proto.graph.initializer, inside)
        return LightModel(light, inside)

    @staticmethod
    def outline(proto: onnx.ModelProto) -> onnx.ModelProto:
        """The model with no more of its larger weights than their names, types and shapes."""
        light = onnx.ModelProto()
        copy_fields(proto, light, "graph")
        copy_fields(proto.graph, light.graph, "initializer")
        add_initializers(
            light.graph, proto.graph.initializer, [t.name for t in proto.graph.initializer if is_large(t)]
        )
        return light

    def copy(self) -> onnx.ModelProto:
        """A copy to change, without the weights."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        return proto

    def whole(self) -> onnx.ModelProto:
        """A copy with the weights inside."""
        proto = self.copy()
        for tensor in proto.graph.initializer:
            if tensor.name in self.weights:
                tensor.CopyFrom(numpy_helper.from_array(self.weights[tensor.name], tensor.name))
        return proto


def _names_read(graph: onnx.GraphProto) -> Iterator[str]:
    """What the nodes and outputs of a graph read, those of bodies included."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _names_read(body)


def add_initializers(graph: onnx.GraphProto, tensors: Iterable[TensorProto], beside: Container[str]) -> None:
    """Append initializers; of those that stand beside only the name, type and shape."""
    for tensor in tensors:
        added = graph.initializer.add()
        if tensor.name not in beside:
            added.CopyFrom(tensor)
            continue
        added.name, added.data_type = tensor.name, tensor.data_type
        added.dims.extend(tensor.dims)
        added.data_location = TensorProto.EXTERNAL
        length = str(int(tensor_bytes(tensor)))
        for key, value in (("location", "beside"), ("offset", "0"), ("length", length)):
            added.external_data.add(key=key, value=value)


def is_large(tensor: TensorProto) -> bool:
    """Whether a tensor is worth standing beside, and of a type that can."""
    return tensor.data_type in SHARED and tensor_bytes(tensor) >= LARGE


def tensor_bytes(tensor: TensorProto) -> float:
    """Bytes of a tensor's values, wherever they lie."""
    kind = tensor.data_type
    item = 8 if kind == TensorProto.STRING else onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize
    return float(item * math.prod(tensor.dims))


def copy_fields(source: Any, target: Any, leave_out: str) -> None:
    """Copy a message but for one field, which may be too large to be copied in vain."""
    for field, value in source.ListFields():
        if field.name == leave_out:
            continue
        if isinstance(value, Message):
            getattr(target, field.name).CopyFrom(value)
        elif hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        else:
            setattr(target, field.name, value)
