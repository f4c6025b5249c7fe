"""What an input is for, told by its use first and by its name second.

Gather(table[30522, 768], ids)      ids are indices in 0..30521
OneHot(labels, depth=10)            labels are indices in 0..9
LSTM(x, w, r, b, lens)              lens is a length: the size of the first axis of x
TopK(x, k)                          k is a small number, not 0
name holds "mask"                   ones: everything is attended to
name holds "length"                 the size of the axis that it measures
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnx.inliner

from normfuse.parity.demands import BROADCAST, KEEPING
from normfuse.parity.model import Model, names_read

# Operators through which an index stays an index.
TRANSPARENT = {
    "Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Flatten", "Expand", "Slice",
    "Concat", "Clip", "Where", "Tile", "Split", "Mod",
}  # fmt: skip
# Index operand and table operand of operators that look something up.
LOOKUPS = {
    "Gather": (1, 0),
    "GatherElements": (1, 0),
    "ScatterElements": (1, 0),
    "GatherBlockQuantized": (1, 0),
}
# Operands that say how much of something there is.
AMOUNTS: Mapping[tuple[str, int], tuple[int, int]] = {
    ("TopK", 1): (1, 2), ("Slice", 1): (0, 1), ("Slice", 2): (1, 2), ("Tile", 1): (1, 3),
    ("Expand", 1): (1, 2), ("Loop", 0): (2, 3), ("OneHot", 1): (2, 3), ("Resize", 3): (1, 2),
    ("ConstantOfShape", 0): (1, 3),
}  # fmt: skip
# Operands that say how long each row is, and the axis of the first operand that they measure.
LENGTHS: Mapping[tuple[str, int], int] = {
    ("LSTM", 4): 0, ("GRU", 4): 0, ("RNN", 4): 0, ("ReverseSequence", 1): 0
}  # fmt: skip
MOST_STEPS = 200
# What has been found out of a model, for as long as there is that model.
_INLINED: WeakKeyDictionary[Model, Model] = WeakKeyDictionary()
_CONSUMERS: WeakKeyDictionary[Model, dict[str, list[onnx.NodeProto]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Role:
    """What values an input gets.

    kind: index, mask, length, total, past, position, flag, pixels, rate, extent, ones, positive, amount or
        plain. low, high: bounds of an index. table: what it looks up.
    of: the input, and its axis, that a length measures.
    """

    kind: str
    low: int = 0
    high: int = 2
    table: str = ""
    reason: str = ""
    of: tuple[str, int] | None = None


EXTENT = (
    r"(^|[_.])((im|img|image|orig|original|origin|target)_?)+(shape|size)s?($|[_.])",
    Role("extent", reason="the size of an image"),
)
NAMES: tuple[tuple[str, Role], ...] = (
    (r"mask", Role("mask", reason="a mask")),
    (r"position|(^|[_.])pos($|[_.])", Role("position", reason="positions")),
    (r"total.*len", Role("total", reason="the length of past and sequence")),
    (r"past.*len", Role("past", reason="the length of the past")),
    (r"(^|[_.])(len|lens|lengths?|seqlens?)($|[_.])|length", Role("length", reason="a length")),
    EXTENT,
    (r"(^|[_.])(sr|sample_?rate|sampling_rate)$", Role("rate", reason="a sampling rate")),
    (r"timestep", Role("index", 1, 1000, reason="a diffusion timestep")),
)


FLOAT_NAMES: tuple[tuple[str, Role], ...] = (
    EXTENT,
    (r"mask", Role("mask", reason="a mask")),
    (r"scale_?factor", Role("ones", reason="a scale of 1")),
    (r"(^|[_.])(timesteps?|sigmas?|temperature|noise_level)($|[_.])", Role("positive", reason="positive")),
)


def role_of_float(model: Model, name: str) -> Role | None:
    """The role of an input of floats; None for ordinary numbers."""
    if any(node.op_type == "Resize" and name in node.input[2:3] for node in _consumers(model).get(name, ())):
        return Role("ones", reason="a scale of 1")
    return next((role for pattern, role in FLOAT_NAMES if re.search(pattern, name.lower())), None)


def role_of(model: Model, name: str, dtype: np.dtype[np.generic]) -> Role:
    """The role of one integer or boolean input."""
    model = _without_functions(model)
    used = [role for role in _uses(model, name) if role.high > role.low]
    length = next((role for role in used if role.kind == "length"), None)
    if length is not None:
        return length
    found = [role for role in used if role.kind == "index"]
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
    amount = next((role for role in used if role.kind == "amount"), None)
    if amount is not None:
        return amount
    if dtype.kind == "b":
        return Role("flag", reason="a flag")
    if dtype == np.uint8:
        return Role("pixels", 0, 256, reason="bytes")
    if dtype == np.int8:
        return Role("pixels", -128, 128, reason="bytes")
    return Role("plain", reason="zeros and ones")


def _without_functions(model: Model) -> Model:
    """The model with its local functions written out, so that uses inside them are found."""
    if not model.proto.functions:
        return model
    if model not in _INLINED:
        inlined = onnx.inliner.inline_local_functions(model.light.proto)
        _INLINED[model] = Model(model.path, inlined, edited=True)
    return _INLINED[model]


def _uses(model: Model, start: str) -> Iterator[Role]:
    """Every table that the input, or something shifted from it, indexes, and what it measures or counts.

    Bodies are searched too.
    """
    consumers = _consumers(model)
    seen: set[str] = set()
    queue: list[tuple[str, int]] = [(start, 0)]
    while queue and len(seen) < MOST_STEPS:
        name, shift = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in consumers.get(name, ()):
            role = _lookup(model, node, name, shift) or _measure(model, node, name)
            if role is not None:
                yield role
            moved = _shift(model, node, name)
            if moved is not None:
                queue.extend((out, shift + moved) for out in node.output)


def _consumers(model: Model) -> Mapping[str, list[onnx.NodeProto]]:
    if model in _CONSUMERS:
        return _CONSUMERS[model]
    found: dict[str, list[onnx.NodeProto]] = {}
    for scope in model.scopes:
        for node in scope.graph.node:
            for name in names_read(node):
                found.setdefault(name, []).append(node)
    _CONSUMERS[model] = found
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


def _measure(model: Model, node: onnx.NodeProto, name: str) -> Role | None:
    """A length or an amount; not one of several that a Concat puts together."""
    place = (node.op_type, list(node.input).index(name)) if name in node.input else ("", 0)
    if place in LENGTHS:
        axis = next((a.i for a in node.attribute if a.name in ("layout", "time_axis")), LENGTHS[place])
        return Role("length", reason="a length", of=_origin(model, node.input[0], int(axis)))
    if place in AMOUNTS:
        low, high = AMOUNTS[place]
        return Role("amount", low, high, reason=f"how much {node.op_type} takes")
    return None


def _origin(model: Model, name: str, axis: int) -> tuple[str, int] | None:
    """The input, and its axis, that an axis of a value comes from, if only the order of axes changes."""
    for _ in range(MOST_STEPS):
        if name in model.inputs:
            return name, axis
        scope = model.scope_of(name)
        node = scope.graph.node[scope.position[name]] if scope else None
        if node is None or not node.input:
            return None
        if node.op_type == "Transpose":
            order = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
            if order is None or axis >= len(order):
                return None
            axis = int(order[axis])
        elif node.op_type not in KEEPING | BROADCAST:
            return None
        name = node.input[0]
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
