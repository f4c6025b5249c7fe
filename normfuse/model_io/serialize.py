"""From the graph back to a message, without the losses of the way there.

onnx-ir drops sparse initializers, adds a value_info for every initializer, and may write an interface
slightly differently; what belongs to the caller (inputs, outputs) is put back exactly as it was read.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from normfuse.errors import InputError, NormfuseError
from normfuse.model_io.causes import cause
from normfuse.model_io.source import Source

# Up to this version of the format every initializer is also a graph input.
_INITIALIZERS_ARE_INPUTS = 3


def to_proto(model: ir.Model, source: Source) -> onnx.ModelProto:
    """The message of a rewritten model, with the interface and the format version of its source."""
    if source.proto is not None:
        model.ir_version = source.proto.ir_version
    _keep_defaults(model, source)
    try:
        proto = ir.to_proto(model)
    except ir.serde.SerdeError as error:
        raise InputError(f"{source.name}: cannot be written again: {cause(error)}") from error
    if source.proto is not None:
        _restore(proto, source.proto)
    if proto.ir_version <= _INITIALIZERS_ARE_INPUTS:
        _new_initializers_to_nodes(proto)
    return proto


def _keep_defaults(model: ir.Model, source: Source) -> None:
    """A graph input that had a value keeps it, or the caller would suddenly have to feed it."""
    lost = {name: tensor for name, tensor in source.constants if name not in model.graph.initializers}
    for value in model.graph.inputs:
        if value.name in lost:
            value.const_value = lost[value.name]
            model.graph.register_initializer(value)


def _restore(proto: onnx.ModelProto, before: onnx.ModelProto) -> None:
    for now, then in ((proto.graph.input, before.graph.input), (proto.graph.output, before.graph.output)):
        if [value.name for value in now] != [value.name for value in then]:
            raise NormfuseError("a rewrite changed the names or the order of the model's inputs or outputs")
        del now[:]
        now.extend(then)
    proto.graph.sparse_initializer.extend(before.graph.sparse_initializer)
    described = {value.name for value in before.graph.value_info}
    added = {tensor.name for tensor in proto.graph.initializer} - described
    kept = [value for value in proto.graph.value_info if value.name not in added]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(kept)


def _new_initializers_to_nodes(proto: onnx.ModelProto) -> None:
    """In the old format a new constant would have to become a graph input; a Constant node need not."""
    inputs = {value.name for value in proto.graph.input}
    new = [tensor for tensor in proto.graph.initializer if tensor.name not in inputs]
    if not new:
        return
    kept = [tensor for tensor in proto.graph.initializer if tensor.name in inputs]
    nodes = [_constant(tensor) for tensor in new] + list(proto.graph.node)
    del proto.graph.initializer[:], proto.graph.node[:]
    proto.graph.initializer.extend(kept)
    proto.graph.node.extend(nodes)


def _constant(tensor: onnx.TensorProto) -> onnx.NodeProto:
    node = onnx.NodeProto(op_type="Constant", output=[tensor.name])
    attribute = node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    attribute.t.CopyFrom(tensor)
    return node
