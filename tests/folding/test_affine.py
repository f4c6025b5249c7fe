"""The affine and its unique form, and what carries it through a change of shape."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normfuse.folding.affine import affine, compact, identity, regroup, trimmed


def test_axes_along_which_nothing_varies_have_size_one() -> None:
    scale = np.broadcast_to(np.array([1.0, 2.0])[:, None], (3, 2, 4))
    found = affine(scale, np.zeros((3, 1, 1)))
    assert (found.scale.shape, found.shift.shape, found.varies()) == ((1, 2, 1), (1, 1, 1), {1})
    assert compact(np.full((3, 3), 7.0)).shape == (1, 1)


def test_one_affine_after_another() -> None:
    first, second = (
        affine(np.array([2.0, 3.0]), np.array([1.0])),
        affine(np.array([5.0]), np.array([7.0, 8.0])),
    )
    both = first.then(second)
    x = np.array([0.5, -1.0])
    np.testing.assert_array_equal(x * both.scale + both.shift, (x * first.scale + 1) * 5 + [7, 8])
    assert (identity(2).scales, identity(2).moves) == (False, False)


@pytest.mark.parametrize(
    ("shape", "source", "target", "result"),
    [
        ((1, 6, 1), ["N", 6, "L"], ["N", 6, "L", 1], (1, 6, 1, 1)),
        ((1, 6, 1, 1), ["N", 6, 2, 2], ["N", 24], (1, 24)),
        ((1, 24), ["N", 24], ["N", 6, 2, 2], (1, 6, 2, 2)),
        ((1, 1, 8), ["B", "S", 8], ["rows", 8], (1, 8)),
        ((1, 1, 8), ["B", "S", 8], ["rows", 2, 4], (1, 2, 4)),
        ((1, 6, 1, 1), ["N", 6, "H", "W"], ["N", 2, 3, "pixels"], (1, 2, 3, 1)),
        ((1, 1), ["N", "M"], ["other"], (1,)),
        ((1, 6), [1, 6], [6], (6,)),
        ((6,), [6], [1, 1, 6, 1], (1, 1, 6, 1)),
        ((1, 6), ["N", 6], ["M"], None),
        ((1, 6), ["N", 6], ["M", 3], None),
        ((6, 1), [6, 0], [0, 6], None),
    ],
)
def test_a_reshape_moves_the_channel_or_says_that_it_cannot(
    shape: tuple[int, ...], source: list[int | str], target: list[int | str], result: tuple[int, ...] | None
) -> None:
    moved = regroup(np.random.default_rng(0).normal(size=shape), source, target)
    assert (None if moved is None else moved.shape) == result


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]]:
    """A shape, another one of the same size, and along which axes of the first an array varies."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=5))
    shapes = []
    for _ in range(2):
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
        edges = [0, *cuts, len(factors)]
        shapes.append(tuple(math.prod(factors[a:b]) for a, b in pairwise(edges)))
    return shapes[0], shapes[1], tuple(draw(st.booleans()) for _ in shapes[0])


@given(reshapes())
def test_a_reshaped_array_is_broadcast_as_the_tensor_was(
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]],
) -> None:
    source, target, varies = case
    shape = [size if along else 1 for size, along in zip(source, varies, strict=True)]
    array = np.random.default_rng(0).normal(size=shape)
    moved = regroup(array, source, target)
    assert moved is not None
    whole = np.broadcast_to(array, source).reshape(target)
    np.testing.assert_array_equal(np.broadcast_to(moved, target), whole)


@pytest.mark.parametrize(
    ("shape", "result"), [((1, 1, 5), (5,)), ((1, 5, 1), (5, 1)), ((1, 1), (1,)), ((), ())]
)
def test_a_constant_is_written_without_leading_ones(shape: tuple[int, ...], result: tuple[int, ...]) -> None:
    assert trimmed(np.ones(shape)).shape == result


def test_a_reshape_that_cannot_be_is_not_followed():
    assert regroup(np.arange(4.0), (4,), (2, 8, 5)) is None
