"""A value of a walk: its polynomial, and where the axes of the base value lie in it.

A polynomial forgets shapes, so each value carries a *layout*: for each of its dimensions the axis of the
base value that lies there, or None where the dimension has size 1. With a base of shape [B, S, D]

    ReduceMean(axes=-1, keepdims=1)   [B, S, 1]   layout (0, 1, None)
    ReduceMean(axes=-1, keepdims=0)   [B, S]      layout (0, 1)
    Unsqueeze of that, axes=-1        [B, S, 1]   layout (0, 1, None), the same value again

Operands broadcast from the right. Where two axes meet that are not the same, as in x - ReduceMean(x,
keepdims=0) with a square x, the operator computes something else, and the walk ends there with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from normfuse.algebra.polynomial import Algebra, Coefficient, Polynomial, constant, simplified
from normfuse.graph.shapes import Dim

Layout = tuple[int | None, ...]


@dataclass(frozen=True)
class Traced:
    """What is known of one value: polynomial, layout, dimensions (as many as the layout), element type."""

    polynomial: Polynomial
    layout: Layout
    shape: tuple[Dim, ...]
    dtype: ir.DataType


@dataclass(frozen=True)
class End:
    """The walk does not go through an operator; reason is a code of norms.refusal, or "" for no interest."""

    reason: str = ""
    detail: str = ""


class Frame:
    """The axes of one base value, and the rules by which its descendants broadcast.

    shape: the dimensions of the base; sizes: what was reduced over so far, each the N of a mean.
    """

    def __init__(self, shape: Sequence[Dim], dtype: ir.DataType) -> None:
        self.shape = tuple(shape)
        self.rank = len(self.shape)
        self.dtype = dtype
        self.algebra = Algebra(k for k, n in enumerate(self.shape) if n != 1)
        self.sizes: set[int] = set()

    def base(self) -> Traced:
        """The base value itself."""
        layout = tuple(None if n == 1 else k for k, n in enumerate(self.shape))
        return Traced(self.algebra.of_atom(self.algebra.atoms[0]), layout, self.shape, self.dtype)

    def aligned_axis(self, layout: Layout, position: int, dim: Dim) -> int | None:
        """The base axis that a new dimension at `position` lies on, if it provably is that axis."""
        if any(axis is not None and axis != self.rank - len(layout) + k for k, axis in enumerate(layout)):
            return None
        axis = self.rank - len(layout) + position
        return axis if axis >= 0 and self.shape[axis] == dim else None

    def broadcast(self, a: Layout, b: Layout) -> Layout | End:
        """The layout of two operands broadcast against each other."""
        rank = max(len(a), len(b))
        a, b = (None,) * (rank - len(a)) + a, (None,) * (rank - len(b)) + b
        for p, q in zip(a, b, strict=True):
            if p is not None and q is not None and p != q:
                return End("keepdims=0", f"axis {q} of the tensor meets its axis {p}")
        merged = tuple(q if p is None else p for p, q in zip(a, b, strict=True))
        axes = [axis for axis in merged if axis is not None]
        if len(set(axes)) != len(axes):
            return End("keepdims=0", "one axis of the tensor meets itself: an outer product")
        return merged

    def extended(self, layout: Layout, shape: Sequence[Dim]) -> Layout | End:
        """A layout after an operand of `shape` is broadcast against it: new dimensions find their axis."""
        rank = max(len(layout), len(shape))
        padded = (None,) * (rank - len(layout)) + layout
        result = list(padded)
        for offset, dim in enumerate(reversed(shape)):
            position = rank - 1 - offset
            if dim == 1:
                continue
            axis = padded[position]
            if axis is None:
                axis = self.aligned_axis(padded, position, dim)
                if axis is None:
                    return End("affine-expands-shape", f"a dimension {dim} meets one of size 1")
            elif self.shape[axis] != dim:
                known = isinstance(dim, int) and isinstance(self.shape[axis], int)
                return End("affine-expands-shape" if known else "unknown-shape",
                           f"a dimension {dim} meets one of size {self.shape[axis]}")  # fmt: skip
            result[position] = axis
        return tuple(result)

    def coefficient(self, array: np.ndarray[Any, Any], layout: Layout) -> Coefficient | None:
        """A constant operand in the frame: rank of the base, size 1 where it does not vary.

        layout: that of the operator's result. Returns None for a constant of higher rank than the frame
        can hold, or one whose axes would have to be permuted.
        """
        values = np.asarray(array, dtype=np.float64)
        plain = simplified(values)
        if not isinstance(plain, np.ndarray):
            return plain
        target = [1] * self.rank
        last = -1
        for offset, size in enumerate(values.shape):
            if size == 1:
                continue
            axis = layout[len(layout) - values.ndim + offset]
            if axis is None or axis <= last:
                return None
            target[axis], last = size, axis
        return values.reshape(target)

    def constant(self, array: np.ndarray[Any, Any], layout: Layout) -> Polynomial | None:
        """The polynomial of a constant operand."""
        found = self.coefficient(array, layout)
        return None if found is None else constant(found)


def relabelled(layout: Layout, shape: Sequence[Dim], target: Sequence[Dim]) -> Layout | None:
    """The layout after a Reshape that only adds or drops dimensions of size 1; None for any other.

    A Reshape keeps the number of elements, so where all dimensions but one are provably the same, that one
    is the same too, whatever it is called.
    """
    kept = [(n, axis) for n, axis in zip(shape, layout, strict=True) if n != 1]
    wanted = [n for n in target if n != 1]
    if len(kept) != len(wanted):
        return None
    unproven = [(n, m) for (n, _), m in zip(kept, wanted, strict=True) if n != m]
    if len(unproven) > 1 or (unproven and all(isinstance(n, int) for n in unproven[0])):
        return None
    axes = iter(axis for _, axis in kept)
    return tuple(None if n == 1 else next(axes) for n in target)
