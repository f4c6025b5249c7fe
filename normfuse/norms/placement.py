"""A recognised form, as it lies in a tensor: which of its dimensions are normalized, and in how many groups.

A form speaks of axes of the walk's frame. The tensor is the base, or the one of which the base is a view;
a normalization of the latter that covers part of its channels is a normalization in groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from normfuse.algebra.coefficient import Coefficient
from normfuse.algebra.frame import Frame, View
from normfuse.graph.shapes import Dim
from normfuse.norms.forms import Form


@dataclass(frozen=True)
class Placed:
    """A form in a tensor: its dimensions, those that are normalized, and scale and bias of its rank.

    groups: 0, or into how many parts the second dimension is normalized.
    """

    shape: tuple[Dim, ...]
    normalized: frozenset[int]
    scale: Coefficient
    bias: Coefficient
    groups: int = 0

    @property
    def ones(self) -> frozenset[int]:
        """Dimensions of size 1: they may be counted as normalized or not."""
        return frozenset(k for k, n in enumerate(self.shape) if n == 1)

    @property
    def affine(self) -> frozenset[int]:
        """Dimensions along which scale or bias varies."""
        arrays = [c for c in (self.scale, self.bias) if isinstance(c, np.ndarray)]
        return frozenset(k for a in arrays for k, n in enumerate(a.shape) if n != 1)

    @property
    def is_static_behind_channels(self) -> bool:
        """Whether the length of every dimension behind the second is known."""
        return all(isinstance(n, int) for n in self.shape[2:])


def place(frame: Frame, view: View, form: Form) -> Placed | None:
    """The form in the dimensions of a view; None where it normalizes parts that no operator has."""
    normalized = {k for k, group in enumerate(view.layout) if group and form.axes.issuperset(group)}
    partial = {k for k, group in enumerate(view.layout) if form.axes & set(group)} - normalized
    scale, bias = frame.in_view(form.scale, view), frame.in_view(form.bias, view)
    if not partial:
        return Placed(view.shape, frozenset(normalized), scale, bias)
    groups = _groups(frame, view, form) if partial == {1} else 0
    behind = {k for k in range(2, len(view.shape)) if view.layout[k]}
    if not groups or not behind or normalized != behind:
        return None
    return Placed(view.shape, frozenset(range(2, len(view.shape))), scale, bias, groups)


def _groups(frame: Frame, view: View, form: Form) -> int:
    """Into how many parts the second dimension is normalized; 0 where they are not contiguous, or unknown."""
    group = view.layout[1]
    outside = [axis for axis in group if axis not in form.axes]
    lengths = [n for axis in outside if isinstance(n := frame.sizes[axis], int)]
    contiguous = tuple(outside) == group[: len(outside)]
    known = len(lengths) == len(outside) and isinstance(view.shape[1], int)
    return math.prod(lengths) if contiguous and known else 0
