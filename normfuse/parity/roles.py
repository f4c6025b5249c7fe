"""What an integer or boolean input is for, told by its use first and by its name second.

Gather(table[30522, 768], ids)      ids are indices in 0..30521
OneHot(labels, depth=10)            labels are indices in 0..9
name holds "mask"                   ones: everything is attended to
name holds "length"                 the size of the axis that it measures
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from normfuse.parity.model import Model, names_read

# Operators through which an index stays an index.
TRANSPARENT = {
    "Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Flatten", "Expand", "Slice",
    "Concat", "Clip", "Where", "Tile", "Split", "Mod",
}  # fmt: skip
# Index operand and table operand of operators that look something up.
LOOKUPS = {"Gather": (1, 0), "GatherElements": (1, 0), "ScatterElements": (1, 0)}
MOST_STEPS = 200


@dataclass(frozen=True)
class Role:
    """kind: index, mask, length, position, flag, pixels, rate or plain; low and high bound an index."""

    kind: str
    low: int = 0
    high: int = 2
    table: str = ""
    reason: str = ""


NAMES: tuple[tuple[str, Role], ...] = (
    (r"mask", Role("mask", reason="a mask")),
    (r"position", Role("position", reason="positions")),
    (r"(^|[_.])(len|lens|lengths?|seqlens?)($|[_.])|length", Role("length", reason="a length")),
    (r"(^|[_.])(sr|sample_?rate|sampling_rate)$", Role("rate", reason="a sampling rate")),
    (r"timestep", Role("index", 1, 1000, reason="a diffusion timestep")),
)


def role_of(model: Model, name: str, dtype: np.dtype[np.generic]) -> Role:
    """The role of one integer or boolean input."""
    found = [role for role in _lookups(model, name) if role.high > role.low]
    by_name = next((role for pattern, role in NAMES if re.search(pattern, name.lower())), None)
    if by_name is not None and by_name.kind == "mask" and all(role.low <= 1 < role.high for role in found):
        return by_name
    if found and dtype.kind in "iu":
        narrow = min(found, key=lambda role: role.high)
        low = max(role.low for role in found)
        if by_name is not None and by_name.kind == "position":
            return Role("position", low, narrow.high, narrow.table, f"positions below {narrow.high}")
        return Role("index", low, narrow.high, narrow.table, f"indices below {narrow.high} of {narrow.table}")
    if by_name is not None:
        return by_name
    if dtype.kind == "b":
        return Role("flag", reason="a flag")
    if dtype == np.uint8:
        return Role("pixels", 0, 256, reason="bytes")
    return Role("plain", reason="zeros and ones")


def _lookups(model: Model, start: str) -> Iterator[Role]:
    """Every table that the input, or something shifted from it, indexes; bodies are searched too."""
    consumers = _consumers(model)
    seen: set[str] = set()
    queue: list[tuple[str, int]] = [(start, 0)]
    while queue and len(seen) < MOST_STEPS:
        name, shift = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in consumers.get(name, ()):
            role = _lookup(model, node, name, shift)
            if role is not None:
                yield role
            moved = _shift(model, node, name)
            if moved is not None:
                queue.extend((out, shift + moved) for out in node.output)


def _consumers(model: Model) -> Mapping[str, list[onnx.NodeProto]]:
    found: dict[str, list[onnx.NodeProto]] = {}
    for scope in model.scopes:
        for node in scope.graph.node:
            for name in names_read(node):
                found.setdefault(name, []).append(node)
    return found


def _lookup(model: Model, node: onnx.NodeProto, name: str, shift: int) -> Role | None:
    if node.op_type in LOOKUPS:
        index, table = LOOKUPS[node.op_type]
        if node.input[index] != name:
            return None
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        size = _size(model, node.input[table], axis)
        return None if size is None else Role("index", max(0, -shift), size - shift, node.input[table])
    if node.op_type == "OneHot" and node.input[0] == name:
        depth = _scalar(model, node.input[1])
        return (
            None
            if depth is None
            else Role("index", max(0, -shift), depth - shift, f"OneHot of depth {depth}")
        )
    if node.op_type == "Equal":  # a one-hot spelled out knows the numbers of its row
        row = _row(model, node.input[1] if node.input[0] == name else node.input[0])
        return (
            None
            if row is None
            else Role("index", row[0] - shift, row[1] + 1 - shift, f"numbers up to {row[1]}")
        )
    if node.op_type == "EmbedLayerNormalization" and name in node.input[:2]:
        table_name = node.input[2 if node.input[0] == name else 4]
        size = _size(model, table_name, 0)
        return None if size is None else Role("index", 0, size, table_name)
    return None


def _shift(model: Model, node: onnx.NodeProto, name: str) -> int | None:
    """0 where a node hands an index on, the constant where it adds one, None where it ends."""
    if node.op_type in TRANSPARENT:
        return 0
    if (node.op_type in ("Add", "Sub") and node.input[0] == name) or node.op_type == "Add":
        other = node.input[1] if node.input[0] == name else node.input[0]
        value = _scalar(model, other)
        return None if value is None else value if node.op_type == "Add" else -value
    return None


def _size(model: Model, name: str, axis: int) -> int | None:
    """The length of one axis of a table, from its constant or its declared type."""
    tensor = model.constant(name)
    if tensor is not None:
        dims = list(tensor.dims)
        return int(dims[axis]) if -len(dims) <= axis < len(dims) else None
    for scope in model.scopes:
        if name in scope.types:
            shape = scope.types[name].tensor_type.shape.dim
            if -len(shape) <= axis < len(shape) and shape[axis].WhichOneof("value") == "dim_value":
                return int(shape[axis].dim_value)
    return None


def _row(model: Model, name: str) -> tuple[int, int] | None:
    """The least and the largest of a constant row of integers, seen through expansion and reshaping."""
    for _ in range(MOST_STEPS):
        tensor = model.constant(name)
        if tensor is not None:
            values = model.array(tensor)
            row = values.size > 1 and values.dtype.kind in "iu"
            return (int(values.min()), int(values.max())) if row else None
        scope = model.scope_of(name)
        node = scope.graph.node[scope.position[name]] if scope else None
        if node is None or node.op_type not in TRANSPARENT:
            return None
        name = node.input[0]
    return None


def _scalar(model: Model, name: str) -> int | None:
    """An integer constant of one element."""
    tensor = model.constant(name)
    if tensor is None or np.prod(tensor.dims, dtype=np.int64) != 1:
        return None
    value = model.array(tensor).reshape(-1)[0]
    return int(value) if np.issubdtype(value.dtype, np.integer) else None
