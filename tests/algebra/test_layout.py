"""Where the axes of the base lie in a value: views, and operands that broadcast against it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from normfuse.algebra.frame import End, Frame
from normfuse.algebra.refinement import refine, regroup

FRAME = Frame(("B", 4, 6), ir.DataType.FLOAT)


@pytest.mark.parametrize(
    ("axes", "sizes", "target", "expected"),
    [
        ([0, 1], ("B", 4), ("B", 4, 1), ((0,), (1,), ())),
        ([0, 1], ("B", 4), ("B", 1, 4), ((0,), (), (1,))),
        ([0, 1], ("B", 4), ("N", 4), ((0,), (1,))),  # as many elements, so N is B
        ([0, 1], ("B", 4), (4, "B"), None),
        ([0, 1], ("B", 4), ("N", "M"), None),
        ([0, 1], (4, 6), (6, 4), None),
        ([0, 1], (4, 6), (24,), ((0, 1),)),
        ([0, 1, 2], (2, 3, 4), (2, 12), ((0,), (1, 2))),
        ([0, 1, 2], (2, 3, 4), (6, 4), ((0, 1), (2,))),
        ([1, 0, 2], (2, 3, 4), (6, 4), ((1, 0), (2,))),
        ([0], (12,), (3, 4), None),  # an axis would be split
        ([], (), (1, 1, 1), ((), (), ())),
    ],
)
def test_a_view_groups_whole_axes(axes, sizes, target, expected):
    assert regroup(axes, sizes, target) == expected


@pytest.mark.parametrize(
    ("view", "source", "sizes"),
    [
        (("N", 4, 60), ("N", 8, 5, 6), ("N", 4, 2, 5, 6)),
        ((2, 4, 32), (2, 8, 4, 4), (2, 4, 2, 4, 4)),
        (("8*N", 16), ("N", 8, 4, 4), ("N", 8, 4, 4)),
        (("N", 4, "M"), ("N", 8, "H", "W"), ("N", 4, 2, "H", "W")),
        ((6, 4), (4, 6), None),
        (("A", 4), (4, "A"), None),
        (("A", "C"), ("B", "D"), None),
    ],
)
def test_two_views_of_the_same_elements_have_common_axes(view, source, sizes):
    found = refine(view, source)
    assert (None if found is None else found[0]) == sizes


STATIC = [
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (2, 12)),
    ((4, 6), (2, 12)),
    ((2, 8, 4, 4), (2, 4, 32)),
    ((2, 8, 4), (2, 2, 16)),
    ((12,), (3, 1, 4)),
    ((1, 4, 6), (24,)),
    ((2, 2, 9), (4, 3, 3)),
]


@pytest.mark.parametrize(("view", "source"), STATIC + [(b, a) for a, b in STATIC])
def test_the_axes_of_a_refinement_are_those_of_the_elements(view, source):
    found = refine(view, source)
    if found is None:
        return
    sizes, mine, others = found
    numbers = np.arange(np.prod(view)).reshape(sizes)
    for shape, layout in ((view, mine), (source, others)):
        axes = [axis for group in layout for axis in group]
        assert axes == list(range(len(sizes)))
        assert [int(np.prod([sizes[k] for k in group])) for group in layout] == list(shape)
        np.testing.assert_array_equal(numbers.reshape(shape).ravel(), np.arange(np.prod(view)))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (((0,), (1,), (2,)), ((0,), (1,), ()), ((0,), (1,), (2,))),
        (((0,), (1,), (2,)), ((2,),), ((0,), (1,), (2,))),
        (((0,), (1,), (2,)), ((1,),), None),  # keepdims=0: axis 1 would lie along axis 2
        (((0,), ()), ((0,),), None),  # an outer product: axis 0 in two places
        (((0,), (), (2,)), ((), (1,), ()), ((0,), (1,), (2,))),
        ((), ((0,), (1,), (2,)), ((0,), (1,), (2,))),
    ],
)
def test_two_values_broadcast_where_their_axes_meet(a, b, expected):
    for left, right in ((a, b), (b, a)):
        found = FRAME.broadcast(left, right)
        if expected is None:
            assert isinstance(found, End)
            assert found.reason == "keepdims=0"
        else:
            assert found == expected


@pytest.mark.parametrize(
    ("layout", "shape", "expected"),
    [
        (((0,), (1,), ()), (6,), ((0,), (1,), (2,))),
        (((0,), (1,), ()), (1, 4, 1), ((0,), (1,), ())),
        (((0,), (1,), ()), (5,), "affine-expands-shape"),
        (((0,), (1,), (2,)), (4,), "affine-expands-shape"),
        (((0,), (1,), (2,)), ("B", 1, 1), ((0,), (1,), (2,))),
        (((0,), (1,), (2,)), ("C", 1, 1), "unknown-shape"),
        (((0,), (1,), (2,)), (2, 1, 1), "unknown-shape"),
        (((0,), (1,), (2,)), (3, 1, 1, 1), "affine-expands-shape"),
        (((1,), (0,), ()), (6,), "affine-expands-shape"),
    ],
)
def test_an_operand_must_lie_on_the_axes_of_the_base(layout, shape, expected):
    found = FRAME.extended(layout, shape)
    assert (found.reason if isinstance(found, End) else found) == expected


def test_a_constant_is_laid_along_the_axes_of_the_base():
    gamma = np.arange(1.0, 5.0)
    assert FRAME.coefficient(gamma, ((1,),)).shape == (1, 4, 1)
    assert FRAME.coefficient(gamma.reshape(4, 1), ((0,), (1,), (2,))).shape == (1, 4, 1)
    assert FRAME.coefficient(np.ones((4, 6)), ((0,), (1,), (2,))) == 1.0
    assert FRAME.coefficient(np.arange(24.0).reshape(6, 4), ((0,), (2,), (1,))) is None


def test_the_base_has_no_axis_where_its_size_is_1():
    assert Frame((2, 1, 3), ir.DataType.FLOAT).base().layout == ((0,), (), (1,))
