"""Whether an operator over constants has a result of modest size, before it is computed.

Small operands can make a huge tensor, and a file may claim what it likes:

    Add([30000, 1], [1, 30000])     MatMul([30000, 1], [1, 30000])     Gather([1, 100000], zeros(100000))
    Expand(1, [2^60])               ConstantOfShape([2^60])            Tile(x, [2^40])     Range(0, 2^60, 1)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, Any]
_TO_A_SHAPE = ("Expand", "ConstantOfShape", "Tile")
_PRODUCTS = ("MatMul", "Gemm")
_MOST_STEPS = 1 << 34  # multiplications; some seconds


def is_modest(node: ir.Node, arrays: Sequence[Array | None], most: int) -> bool:
    """Whether the result has at most `most` elements, and takes no more than some seconds."""
    given = [array for array in arrays if array is not None]
    if node.op_type in _TO_A_SHAPE:
        return _of_shape(arrays, most)
    if node.op_type == "Range":
        return len(given) == 3 and _of_range(given, most)
    if node.op_type in _PRODUCTS and len(given) > 1:
        inner = max(1, min(_last(given[0], node, "transA"), given[1].size))
        return 0 <= given[0].size * given[1].size // inner**2 <= most and (
            given[0].size * given[1].size // inner <= _MOST_STEPS
        )
    if node.op_type == "Gather" and len(given) == 2:
        return _of_gather(node, *given) <= most
    if node.op_type == "Concat":
        return sum(a.size for a in given) <= most
    if math.prod(max(a.size, 1) for a in given) <= most:
        return True
    try:
        return math.prod(np.broadcast_shapes(*(a.shape for a in given))) <= most
    except ValueError:
        return all(
            a.size <= most for a in given[:1]
        )  # no broadcasting operator: its first operand is its data


def _of_shape(arrays: Sequence[Array | None], most: int) -> bool:
    """The last operand is a shape, or a number of repeats."""
    target = arrays[-1] if arrays else None
    if target is None:
        return False
    data = arrays[0].size if arrays[0] is not None and len(arrays) > 1 else 1
    return 0 <= data * math.prod(int(d) for d in target.reshape(-1)) <= most


def _of_range(given: Sequence[Array], most: int) -> bool:
    start, limit, step = (float(a.reshape(-1)[0]) if a.size else np.nan for a in given)
    with np.errstate(all="ignore"):
        return bool(np.isfinite(step) and step != 0 and (limit - start) / step <= most)


def _last(array: Array, node: ir.Node, transposed: str) -> int:
    """The length along which a product sums."""
    if not array.ndim:
        return 1
    turned = node.op_type == "Gemm" and bool(node.attributes.get_int(transposed, 0))
    return int(array.shape[0 if turned else -1])


def _of_gather(node: ir.Node, data: Array, indices: Array) -> int:
    axis = node.attributes.get_int("axis", 0)
    length = data.shape[axis] if -data.ndim <= axis < data.ndim else 1
    return indices.size * (data.size // max(length, 1))
