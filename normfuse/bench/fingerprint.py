"""Which sites are equal, as far as time goes: the same operators on the same shapes and types.

    layer 0   x [8, 128, 384] -> LayerNormalization(gamma, beta)      y
    layer 5   x [8, 128, 384] -> LayerNormalization(gamma', beta')    y'     the same: measured once

Names do not count, nor do the values of float arrays; attributes, small constants and integers (axes, target
shapes, an exponent) do.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx

_FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
)

Fingerprint = tuple[object, ...]


def fingerprint(protos: Iterable[onnx.ModelProto]) -> Fingerprint:
    """What makes the time of small models, the candidates of one site; equal for equal ones."""
    return tuple(_of(proto) for proto in protos)


def _of(proto: onnx.ModelProto) -> Fingerprint:
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers)) if name else -1

    nodes = tuple(
        (
            node.domain,
            node.op_type,
            tuple(map(number, node.input)),
            tuple(map(number, node.output)),
            tuple(sorted(_attribute(attribute) for attribute in node.attribute)),
        )
        for node in proto.graph.node
    )
    constants = tuple(sorted((number(t.name), *_tensor(t)) for t in proto.graph.initializer))
    inputs = tuple(
        sorted((number(i.name), i.type.SerializeToString(deterministic=True)) for i in proto.graph.input)
    )
    opsets = tuple(sorted((o.domain, o.version) for o in proto.opset_import))
    return nodes, constants, inputs, tuple(number(o.name) for o in proto.graph.output), opsets


def _attribute(attribute: onnx.AttributeProto) -> tuple[str, bytes]:
    if attribute.type == onnx.AttributeProto.TENSOR:
        return attribute.name, repr(_tensor(attribute.t)).encode()
    return attribute.name, attribute.SerializeToString(deterministic=True)


def _tensor(tensor: onnx.TensorProto) -> tuple[int, tuple[int, ...], bytes]:
    shape = tuple(tensor.dims)
    if tensor.data_type in _FLOATS and np.prod(shape, dtype=np.int64) > 1:
        return tensor.data_type, shape, b""
    return tensor.data_type, shape, np.asarray(onnx.numpy_helper.to_array(tensor)).tobytes()
