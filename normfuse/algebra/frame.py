"""A value of a walk: its polynomial, and where the axes of the base value lie in it.

A polynomial forgets shapes, so each value carries a *layout*: for each of its dimensions the axes of the
frame that lie there, none where the dimension has size 1. With a base of shape [B, S, D]

    ReduceMean(axes=-1, keepdims=1)   [B, S, 1]   layout ((0,), (1,), ())
    ReduceMean(axes=-1, keepdims=0)   [B, S]      layout ((0,), (1,))
    Unsqueeze of that, axes=-1        [B, S, 1]   layout ((0,), (1,), ()), the same value again

Operands broadcast from the right. Where two dimensions meet that do not hold the same axes, as in
x - ReduceMean(x, keepdims=0) with a square x, the operator computes something else, and the walk ends there.

A base that is a view (Reshape) of another tensor shares a frame with it: the axes are those of the common
refinement of both shapes, so that a value can be followed from one to the other.

    view [N, 4, 30*2], tensor [N, 8, 5, 6]    axes N, 4, 2, 5, 6
    view    ((0,), (1,), (2, 3, 4))           tensor ((0,), (1, 2), (3,), (4,))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from normfuse.algebra.atoms import ONE, Polynomial
from normfuse.algebra.coefficient import Coefficient, simplified
from normfuse.algebra.polynomial import Algebra
from normfuse.algebra.refinement import Group, Layout, refine, regroup
from normfuse.graph.shapes import Dim


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


@dataclass(frozen=True)
class View:
    """One way in which the axes of a frame are grouped into dimensions: the base's, or its source's."""

    layout: Layout
    shape: tuple[Dim, ...]


class Frame:
    """The axes of one base value, and the rules by which its descendants broadcast.

    sizes: the lengths of the axes. base_view: how they lie in the base; source_view: in the tensor of which
    the base is a view, where it is one. reduced: how many elements each mean so far was of.
    """

    def __init__(self, shape: Sequence[Dim], dtype: ir.DataType, source: Sequence[Dim] | None = None) -> None:
        refined = refine(shape, source) if source is not None else None
        if refined is not None and not _is_usable(shape, refined[0], refined[1]):
            refined = None
        sizes, base, other = refined if refined is not None else (*_own(shape), None)
        self.sizes: tuple[Dim, ...] = sizes
        self.base_view = View(base, tuple(shape))
        self.source_view = None if other is None or source is None else View(other, tuple(source))
        self.dtype = dtype
        self.algebra = Algebra(range(len(sizes)))
        self.reduced: set[int] = set()
        self._dims: dict[Group, Dim] = {(): 1}
        self._base = self._traced(self.base_view)

    def copy(self, atoms: int, reduced: Iterable[int]) -> Frame:
        """The frame as it was when its algebra had so many atoms, and these means had been taken."""
        other = copy(self)
        other.algebra, other.reduced = self.algebra.copy(atoms), set(reduced)
        return other

    def base(self) -> Traced:
        """The base value itself."""
        return self._base

    def source(self) -> Traced | None:
        """The tensor of which the base is a view: the same numbers, in another layout."""
        return None if self.source_view is None else self._traced(self.source_view)

    def _traced(self, view: View) -> Traced:
        return Traced(self.algebra.of_atom(self.algebra.atoms[0]), view.layout, view.shape, self.dtype)

    @property
    def views(self) -> tuple[View, ...]:
        """The base's view, and that of its source."""
        return (self.base_view,) if self.source_view is None else (self.base_view, self.source_view)

    def dim(self, group: Group) -> Dim:
        """The length of a dimension that holds these axes; 1 where it holds none."""
        known = self._dims.get(group)
        if known is None:
            known = self._dims[group] = self._length(group)
        return known

    def _length(self, group: Group) -> Dim:
        for view in self.views:
            for known, dim in zip(view.layout, view.shape, strict=True):
                if known == group:
                    return dim
        number = math.prod(n for k in group if isinstance(n := self.sizes[k], int))
        symbols = sorted(n for k in group if isinstance(n := self.sizes[k], str))
        return number if not symbols else "*".join(([str(number)] if number != 1 else []) + symbols)

    def shape_of(self, layout: Layout) -> tuple[Dim, ...]:
        """The dimensions of a value with this layout."""
        return tuple([self.dim(group) for group in layout])

    def broadcast(self, a: Layout, b: Layout) -> Layout | End:
        """The layout of two operands broadcast against each other."""
        rank = max(len(a), len(b))
        a, b = ((),) * (rank - len(a)) + a, ((),) * (rank - len(b)) + b
        for p, q in zip(a, b, strict=True):
            if p and q and p != q:
                return End("keepdims=0", "one axis of the tensor meets another")
        merged = tuple(p or q for p, q in zip(a, b, strict=True))
        axes = [axis for group in merged for axis in group]
        if len(set(axes)) != len(axes):
            return End("keepdims=0", "one axis of the tensor meets itself: an outer product")
        return merged

    def extended(self, layout: Layout, shape: Sequence[Dim]) -> Layout | End:
        """A layout after an operand of `shape` is broadcast against it: new dimensions find their axes."""
        rank = max(len(layout), len(shape))
        padded = ((),) * (rank - len(layout)) + layout
        result = list(padded)
        for offset, dim in enumerate(reversed(shape)):
            position = rank - 1 - offset
            if dim == 1:
                continue
            group = padded[position] or self._aligned(padded, position, dim)
            if not group:
                return End("affine-expands-shape", f"a dimension {dim} meets one of size 1")
            known = self.dim(group)
            if known != dim:
                static = isinstance(dim, int) and isinstance(known, int)
                reason = "affine-expands-shape" if static else "unknown-shape"
                return End(reason, f"a dimension {dim} meets one of size {known}")
            result[position] = group
        axes = [axis for group in result for axis in group]
        distinct = len(set(axes)) == len(axes)
        return tuple(result) if distinct else End("affine-expands-shape", "an outer product")

    def _aligned(self, layout: Layout, position: int, dim: Dim) -> Group:
        """The axes that a new dimension lies on: those that a view has there, if that is the only choice."""
        found: set[Group] = set()
        for view in self.views:
            offset = len(view.layout) - len(layout)
            lying = [(k + offset, group) for k, group in enumerate(layout) if group]
            fits = all(k >= 0 and view.layout[k] == group for k, group in lying)
            if fits and position + offset >= 0 and view.shape[position + offset] == dim:
                found.add(view.layout[position + offset])
        return found.pop() if len(found) == 1 else ()

    def coefficient(self, array: np.ndarray[Any, Any], layout: Layout) -> Coefficient | None:
        """A constant operand in the frame: one dimension an axis, size 1 where it does not vary.

        layout: that of the operator's result. Returns None for a constant whose axes would have to be
        permuted, or split where a length is not known.
        """
        values = np.asarray(array, dtype=np.float64)
        plain = simplified(values)
        if not isinstance(plain, np.ndarray):
            return plain
        target, last = [1] * len(self.sizes), -1
        for offset, size in enumerate(values.shape):
            if size == 1:
                continue
            group = layout[len(layout) - values.ndim + offset]
            if not group or list(group) != sorted(group) or group[0] <= last:
                return None
            lengths = [n for k in group if isinstance(n := self.sizes[k], int)]
            if len(group) == 1:
                lengths = [size]
            if len(lengths) != len(group):
                return None
            for axis, length in zip(group, lengths, strict=True):
                target[axis] = length
            last = group[-1]
        return values.reshape(target)

    def constant(self, array: np.ndarray[Any, Any], layout: Layout) -> Polynomial | None:
        """The polynomial of a constant operand."""
        found = self.coefficient(array, layout)
        return None if found is None else {ONE: found}

    def reshaped(self, layout: Layout, target: Sequence[Dim]) -> Layout | None:
        """The layout after a Reshape to `target`, or None where it splits an axis of the frame."""
        return regroup([axis for group in layout for axis in group], self.sizes, target)

    def in_view(self, coefficient: Coefficient, view: View) -> Coefficient:
        """A coefficient as an array of the rank of a view, size 1 wherever it does not vary."""
        if not isinstance(coefficient, np.ndarray):
            return coefficient
        lengths, full = list(coefficient.shape), []
        for group in view.layout:
            varies = any(lengths[k] != 1 for k in group)
            for axis in group:
                size = self.sizes[axis]
                if varies and lengths[axis] == 1 and isinstance(size, int):
                    lengths[axis] = size
            full.append(math.prod([lengths[k] for k in group]))
        return np.broadcast_to(coefficient, lengths).reshape(full)


def _own(shape: Sequence[Dim]) -> tuple[tuple[Dim, ...], Layout]:
    """Axes that are the dimensions themselves, those of size 1 left out."""
    axes = iter(range(len(shape)))
    layout = tuple((next(axes),) if n != 1 else () for n in shape)
    return tuple(n for n in shape if n != 1), layout


def _is_usable(shape: Sequence[Dim], sizes: Sequence[Dim], layout: Layout) -> bool:
    """Whether constants along the base's dimensions can be split into the axes of a refinement."""
    return all(
        not isinstance(n, int) or len(group) < 2 or all(isinstance(sizes[k], int) for k in group)
        for n, group in zip(shape, layout, strict=True)
    )
