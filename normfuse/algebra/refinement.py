"""The common refinement of two shapes that hold the same elements, and regrouping its axes.

    [N, 4, 60] and [N, 8, 5, 6]      axes (N, 4, 2, 5, 6)
    the first is ((0,), (1,), (2, 3, 4)), the second ((0,), (1, 2), (3,), (4,))

Dimensions of size 1 hold no axis. Lengths may be symbols, or products of a number and symbols ("8*N"). Two
are the same when they have one name; and where all but one are accounted for, the last holds what is left,
because both shapes have as many elements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from normfuse.graph.shapes import Dim

Group = tuple[int, ...]
Layout = tuple[Group, ...]
_PRODUCT = re.compile(r"[A-Za-z0-9_]+(\*[A-Za-z0-9_]+)+")


def factors(dim: Dim) -> tuple[int, tuple[str, ...]]:
    """A length as a number times symbols, the symbols sorted."""
    if isinstance(dim, int):
        return dim, ()
    if not _PRODUCT.fullmatch(dim):
        return 1, (dim,)
    number, symbols = 1, []
    for part in dim.split("*"):
        if part.isdecimal():
            number *= int(part)
        else:
            symbols.append(part)
    return number, tuple(sorted(symbols))


def product(dims: Sequence[Dim]) -> tuple[int, tuple[str, ...]]:
    """The product of lengths as a number times symbols."""
    number, symbols = 1, []  # type: int, list[str]
    for dim in dims:
        n, s = factors(dim)
        number *= n
        symbols.extend(s)
    return number, tuple(sorted(symbols))


def refine(view: Sequence[Dim], source: Sequence[Dim]) -> tuple[tuple[Dim, ...], Layout, Layout] | None:
    """Axis lengths and both layouts; None where the shapes have no refinement that can be proved."""
    first, second = [n for n in view if n != 1], [n for n in source if n != 1]
    axes = list(_common(first, second))
    groups: tuple[list[list[int]], list[list[int]]] = ([[] for _ in first], [[] for _ in second])
    for axis, (_, i, j) in enumerate(axes):
        if i >= len(first) or j >= len(second):
            return None
        groups[0][i].append(axis)
        groups[1][j].append(axis)
    if not all(groups[0]) or not all(groups[1]):
        return None
    return tuple(n for n, _, _ in axes), _with_ones(view, groups[0]), _with_ones(source, groups[1])


def _common(a: Sequence[Dim], b: Sequence[Dim]) -> Iterator[tuple[Dim, int, int]]:
    """Each axis with the dimensions of both shapes that it lies in; stops where nothing can be proved."""
    i = j = 0
    left_a, left_b = a[0] if a else 1, b[0] if b else 1
    while i < len(a) and j < len(b):
        axis = _shared(left_a, left_b)
        if axis is None and i == len(a) - 1:
            yield left_b, i, j
            yield from ((n, i, k) for k, n in enumerate(b[j + 1 :], j + 1))
            return
        if axis is None and j == len(b) - 1:
            yield left_a, i, j
            yield from ((n, k, j) for k, n in enumerate(a[i + 1 :], i + 1))
            return
        if axis is None:
            return
        yield axis, i, j
        left_a, left_b = _without(left_a, axis), _without(left_b, axis)
        if left_a == 1:
            i += 1
            left_a = a[i] if i < len(a) else 1
        if left_b == 1:
            j += 1
            left_b = b[j] if j < len(b) else 1


def _shared(a: Dim, b: Dim) -> Dim | None:
    """The longest axis with which both dimensions can begin: the shorter, if the other is its multiple."""
    if a == b:
        return a
    for small, large in ((a, b), (b, a)):
        (n, symbols), (m, others) = factors(small), factors(large)
        contained = not Counter(symbols) - Counter(others)
        if contained and n and m % n == 0:
            return small
    return None


def _without(dim: Dim, axis: Dim) -> Dim:
    """A dimension divided by an axis that it begins with."""
    (n, symbols), (m, taken) = factors(dim), factors(axis)
    left = list(symbols)
    for symbol in taken:
        left.remove(symbol)
    number = n // m
    if not left:
        return number
    return "*".join(([str(number)] if number != 1 else []) + left)


def _with_ones(shape: Sequence[Dim], groups: Sequence[Sequence[int]]) -> Layout:
    remaining = iter(groups)
    return tuple(() if n == 1 else tuple(next(remaining)) for n in shape)


def regroup(axes: Sequence[int], sizes: Sequence[Dim], target: Sequence[Dim]) -> Layout | None:
    """How axes, in order, lie in a shape of as many elements; None where one would have to be split."""
    wanted = [n for n in target if n != 1]
    front = _matched(axes, sizes, wanted)
    if len(front) == len(wanted):
        taken = sum(map(len, front))
        return _with_ones(target, front) if taken == len(axes) else None
    rest = list(axes[sum(map(len, front)) :])
    behind = _matched(rest[::-1], sizes, wanted[len(front) + 1 :][::-1])
    if len(front) + 1 + len(behind) != len(wanted):
        return None
    middle = rest[: len(rest) - sum(map(len, behind))]
    number, symbols = product([sizes[k] for k in middle])
    unproven = wanted[len(front)]
    if not middle or (not symbols and isinstance(unproven, int) and number != unproven):
        return None
    return _with_ones(target, [*front, middle, *(group[::-1] for group in behind[::-1])])


def _matched(axes: Sequence[int], sizes: Sequence[Dim], wanted: Sequence[Dim]) -> list[list[int]]:
    """Groups for as many leading dimensions as can be matched exactly."""
    groups: list[list[int]] = []
    position = 0
    for dim in wanted:
        group: list[int] = []
        while position < len(axes) and (not group or product([sizes[k] for k in group]) != factors(dim)):
            group.append(axes[position])
            position += 1
        if product([sizes[k] for k in group]) != factors(dim) or not group:
            return groups
        groups.append(group)
    return groups
