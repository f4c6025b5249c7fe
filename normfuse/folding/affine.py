"""The affine y = scale * x + shift, constant, with scale and shift broadcast against x.

    BatchNormalization   scale = gamma / sqrt(var + eps)      shift = beta - mean * scale
    Mul, Div, Neg        scale = c, 1/c, -1                    shift = 0
    Add, Sub             scale = 1 (or -1 for c - x)           shift = c or -c

Both are float64 arrays of the rank of x, with size 1 along every axis where they do not vary: that form is
unique, so "per channel" can be read off a shape, and an affine over a channel whose parameters happen to be
equal is the scalar that it is.

An affine is carried through an operator that moves elements by moving its arrays: `regroup` for every
operator that keeps the order of the elements (Reshape, Flatten, Squeeze, Unsqueeze), `transposed` for
Transpose. Whether it still is per channel at the other end shows in the shape of the arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Dim = int | str
MAX_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Affine:
    """scale * x + shift for an x whose rank is that of both arrays."""

    scale: Array
    shift: Array

    @property
    def rank(self) -> int:
        """The rank of x."""
        return self.scale.ndim

    @property
    def moves(self) -> bool:
        """Whether there is a shift at all."""
        return bool(np.any(self.shift))

    @property
    def scales(self) -> bool:
        """Whether there is a scale at all."""
        return not bool(np.all(self.scale == 1.0))

    def varies(self) -> frozenset[int]:
        """The axes along which scale or shift varies."""
        return frozenset(k for k in range(self.rank) if self.scale.shape[k] != 1 or self.shift.shape[k] != 1)

    def then(self, later: Affine) -> Affine:
        """What computes `later` of this one: later(self(x))."""
        with np.errstate(all="ignore"):
            return affine(self.scale * later.scale, self.shift * later.scale + later.shift)

    def normal(self) -> Affine:
        """The same affine in its unique form."""
        return affine(self.scale, self.shift)

    def each(self, change: Callable[[Array], Array | None]) -> Affine | None:
        """Both arrays changed in the same way; None where `change` cannot."""
        scale, shift = change(self.scale), change(self.shift)
        return None if scale is None or shift is None else affine(scale, shift)


def affine(scale: Array, shift: Array) -> Affine:
    """An affine from two arrays of the same rank, in its unique form."""
    return Affine(compact(scale), compact(shift))


def identity(rank: int) -> Affine:
    """The affine that changes nothing."""
    return Affine(np.ones((1,) * rank), np.zeros((1,) * rank))


def compact(array: Array) -> Array:
    """The same array with size 1 along every axis where it does not vary."""
    for axis in range(array.ndim):
        if array.shape[axis] > 1:
            first = array.take([0], axis=axis)
            if bool((array == first).all()):
                array = first
    return array


def trimmed(array: Array) -> Array:
    """The same array without the axes in front that have size 1, as a constant would be written."""
    axis = next((k for k, size in enumerate(array.shape) if size != 1), max(array.ndim - 1, 0))
    return array.reshape(array.shape[axis:])


def regroup(array: Array, source: Sequence[Dim], target: Sequence[Dim]) -> Array | None:
    """`array`, broadcast against a tensor of dimensions `source`, after the tensor is reshaped to `target`.

    Returns None where it varies along axes that cannot be told apart: symbols in a group that is reshaped.
    """
    groups = _groups(tuple(source), tuple(target))
    if groups is None or array.ndim != len(source):
        return None
    full: list[int] = []
    result: list[int] = []
    position = 0
    for left, right in groups:
        held = array.shape[position : position + len(left)]
        position += len(left)
        if all(size == 1 for size in held):
            full += [1] * len(left)
            result += [1] * len(right)
        elif len(left) == len(right) == 1:  # the same axis; a symbol is known to be what the array says
            full += held
            result += held
        elif any(isinstance(d, str) for d in (*left, *right)):
            return None
        else:
            full += [int(d) for d in left]
            result += [int(d) for d in right]
    if math.prod(full) > MAX_ELEMENTS or math.prod(full) != math.prod(result):
        return None
    return np.broadcast_to(array, full).reshape(result)


Group = tuple[tuple[Dim, ...], tuple[Dim, ...]]


def _groups(source: tuple[Dim, ...], target: tuple[Dim, ...]) -> list[Group] | None:
    """Split both shapes into the shortest runs of axes that hold the same elements.

    Runs are taken from both ends; what symbols leave in the middle is one run, of equal size because
    the whole is.
    """
    if 0 in source or 0 in target:
        return None
    head = _runs(source, target)
    source = source[sum(len(a) for a, _ in head) :]
    target = target[sum(len(b) for _, b in head) :]
    tail = [(a[::-1], b[::-1]) for a, b in reversed(_runs(source[::-1], target[::-1]))]
    source = source[: len(source) - sum(len(a) for a, _ in tail)]
    target = target[: len(target) - sum(len(b) for _, b in tail)]
    return [*head, (source, target), *tail]


def _runs(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> list[Group]:
    """The runs of equal size at the front of both, as far as they can be told."""
    runs: list[Group] = []
    while left and right and (taken := _run(left, right)) is not None:
        a, b = taken
        runs.append((left[:a], right[:b]))
        left, right = left[a:], right[b:]
    return runs


def _run(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> tuple[int, int] | None:
    """How many axes of each make the shortest run of equal size, or None."""
    if left[0] == right[0]:
        return 1, 1
    sizes_left, sizes_right = _static(left), _static(right)
    a = b = 0
    size_a = size_b = 1
    while a == 0 or b == 0 or size_a != size_b:
        if b > 0 and (a == 0 or size_a < size_b):
            if a == len(sizes_left):
                return None
            size_a, a = size_a * sizes_left[a], a + 1
        else:
            if b == len(sizes_right):
                return None
            size_b, b = size_b * sizes_right[b], b + 1
    return a, b


def _static(dims: tuple[Dim, ...]) -> list[int]:
    """The numbers before the first symbol."""
    found: list[int] = []
    for dim in dims:
        if isinstance(dim, str):
            break
        found.append(dim)
    return found
