"""Tensors inside the model file: does each hold as many elements as its shape says?

Without this a truncated weight shows up deep inside a rewrite, as an error of numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import onnx
import onnx_ir as ir

from normfuse.errors import InputError

# The field that holds the elements of each type, and how many entries one element takes.
_T = onnx.TensorProto
_FIELDS: dict[int, tuple[str, int]] = {
    _T.FLOAT: ("float_data", 1),
    _T.COMPLEX64: ("float_data", 2),
    _T.DOUBLE: ("double_data", 1),
    _T.COMPLEX128: ("double_data", 2),
    _T.INT64: ("int64_data", 1),
    _T.UINT64: ("uint64_data", 1),
    _T.UINT32: ("uint64_data", 1),
    _T.STRING: ("string_data", 1),
}
_BYTE_OR_MORE = 8
_MOST_DIGITS = 19  # of 2^63


def check_tensor(tensor: onnx.TensorProto, where: str) -> None:
    """Raise `InputError` unless type, shape and stored data of the tensor agree."""
    place = f"{where}: tensor {tensor.name!r}"
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        raise InputError(
            f"{place} has the data type {tensor.data_type}, which ONNX does not define"
        ) from None
    if dtype is ir.DataType.UNDEFINED:
        raise InputError(f"{place} has no data type")
    if any(dim < 0 for dim in tensor.dims):
        raise InputError(f"{place} has a negative dimension: {list(tensor.dims)}")
    if tensor.HasField("segment"):
        raise InputError(f"{place} is split into segments, which no runtime reads")
    if tensor.data_location == _T.EXTERNAL:
        _check_external(tensor, dtype, place)
        return
    elements = prod(tensor.dims)
    stored, expected, unit = _stored(tensor, dtype, elements)
    if stored != expected:
        raise InputError(
            f"{place} holds {stored} {unit}, but {dtype.name} {list(tensor.dims)} takes {expected}",
            hint=""
            if stored
            else "the model was saved without its weights, or they lie in a file that is not named",
        )


def _stored(tensor: onnx.TensorProto, dtype: ir.DataType, elements: int) -> tuple[int, int, str]:
    """What is stored, what should be, and the unit that both are counted in."""
    if dtype is not ir.DataType.STRING and tensor.HasField("raw_data"):
        return len(tensor.raw_data), -(-elements * dtype.bitwidth // 8), "bytes"
    field, each = _FIELDS.get(tensor.data_type, ("int32_data", 1))
    stored = len(getattr(tensor, field))
    if field == "int32_data" and dtype.bitwidth < _BYTE_OR_MORE:
        # Types below a byte are packed or not, depending on the writer; both are read.
        packed = -(-elements * dtype.bitwidth // 8)
        return stored, packed if stored != elements else elements, "entries"
    return stored, elements * each, "elements"


def _check_external(tensor: onnx.TensorProto, dtype: ir.DataType, place: str) -> None:
    if dtype is ir.DataType.STRING:
        raise InputError(f"{place} holds strings, which cannot lie in an external file")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if "location" not in entries:
        raise InputError(f"{place} lies in an external file, but no location is given")
    for key in ("offset", "length"):
        text = entries.get(key, "0")
        if not text.isascii() or not text.removeprefix("-").isdigit():
            raise InputError(f"{place} has the {key} {text!r}, which is not a number")
        if text.startswith("-"):
            raise InputError(f"{place} has the negative {key} {text}")
        if len(text) > _MOST_DIGITS:
            raise InputError(f"{place} has the {key} {text[:_MOST_DIGITS]}…, which no file reaches")


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and tensor attributes of one graph, without those of its subgraphs."""
    yield from graph.initializer
    yield from tensors_of_nodes(graph.node)


def tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """Tensor attributes of the nodes themselves."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR and not attribute.ref_attr_name:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.TENSORS:
                yield from attribute.tensors
