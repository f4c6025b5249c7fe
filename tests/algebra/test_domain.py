"""What the algebra must not say: powers that do not merge, roots that do not come apart, NaN that is lost."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx_ir as ir
import pytest

from normfuse.algebra.atoms import Polynomial, same
from normfuse.algebra.frame import Frame
from normfuse.algebra.polynomial import MAX_EXPONENT, MAX_TERMS, constant, constant_of

FRAME: list[Frame] = []


@pytest.fixture(autouse=True)
def _fresh_frame():
    FRAME.append(Frame((3, 4), ir.DataType.DOUBLE))
    yield
    FRAME.pop()


def frame() -> Frame:
    """The frame of all polynomials of one test."""
    return FRAME[-1]


def power(p: Polynomial | None, exponent: str) -> Polynomial | None:
    """p to a power, if the algebra will."""
    return None if p is None else frame().algebra.power(p, Fraction(exponent))


def atom() -> Polynomial:
    return frame().base().polynomial


def mean_of_squares() -> Polynomial:
    square = power(atom(), "2")
    assert square is not None
    found = frame().algebra.mean(square, frozenset({1}))
    assert found is not None
    return found


def test_a_product_of_powers_of_two_signs_is_not_merged():
    inverse = power(atom(), "-1")
    square = power(atom(), "2")
    assert inverse is not None
    assert square is not None
    assert frame().algebra.multiply(square, inverse) is None


def test_two_square_roots_do_not_make_the_whole():
    root = power(atom(), "1/2")
    assert root is not None
    assert frame().algebra.multiply(root, root) is None
    squared = power(root, "2")
    assert squared is None or not same(squared, atom())


def test_the_root_of_a_square_is_the_absolute_value():
    magnitude = power(power(atom(), "2"), "1/2")
    assert magnitude is not None
    assert not same(magnitude, atom())
    squared = power(magnitude, "2")
    assert squared is not None
    expected = power(atom(), "2")
    assert expected is not None
    assert same(squared, expected)


def test_the_root_of_a_fourth_power_is_the_square():
    root = power(power(atom(), "4"), "1/2")
    square = power(atom(), "2")
    assert root is not None
    assert square is not None
    assert same(root, square)


def test_a_root_of_a_product_is_not_taken_apart_where_a_factor_may_be_negative():
    mean = frame().algebra.mean(atom(), frozenset({1}))
    assert mean is not None
    product = frame().algebra.multiply(atom(), mean)
    assert product is not None
    root = power(product, "1/2")
    apart = frame().algebra.multiply(power(atom(), "1/2") or {}, power(mean, "1/2") or {})
    assert root is None or apart is None or not same(root, apart)


def test_a_mean_of_squares_with_an_epsilon_is_positive_and_its_powers_merge():
    algebra = frame().algebra
    total = algebra.add(mean_of_squares(), constant(1e-3))
    assert total is not None
    assert algebra.is_positive(total)
    root, inverse = power(total, "1/2"), power(total, "-1/2")
    assert root is not None
    assert inverse is not None
    one = algebra.multiply(root, inverse)
    assert one is not None
    assert constant_of(one) == 1.0


def test_without_an_epsilon_it_is_not_positive():
    algebra = frame().algebra
    total = mean_of_squares()
    assert algebra.is_nonnegative(total)
    assert not algebra.is_positive(total)
    root, inverse = power(total, "1/2"), power(total, "-1/2")
    assert root is not None
    assert inverse is not None
    assert algebra.multiply(root, inverse) is None


def test_a_variance_is_not_negative_by_jensens_inequality():
    algebra = frame().algebra
    mean = algebra.mean(atom(), frozenset({1}))
    square = power(mean, "2")
    assert square is not None
    variance = algebra.add(mean_of_squares(), algebra.scale(square, -1.0))
    assert variance is not None
    assert algebra.is_nonnegative(variance)
    assert not algebra.is_nonnegative(algebra.add(variance, constant(-1e-9)) or {})
    assert not algebra.is_nonnegative(algebra.add(variance, algebra.scale(square, -1e-6)) or {})


def test_two_spellings_of_the_variance_are_one_polynomial():
    algebra = frame().algebra
    mean = algebra.mean(atom(), frozenset({1}))
    assert mean is not None
    deviation = algebra.add(atom(), algebra.scale(mean, -1.0))
    squared = power(deviation, "2")
    assert squared is not None
    one = algebra.mean(squared, frozenset({1}))
    square = power(mean, "2")
    assert square is not None
    other = algebra.add(mean_of_squares(), algebra.scale(square, -1.0))
    assert one is not None
    assert other is not None
    assert same(one, other)


def test_a_value_that_may_be_nan_does_not_vanish_when_it_is_subtracted_from_itself():
    for exponent in ("1/2", "-1"):
        p = power(atom(), exponent)
        assert p is not None
        assert frame().algebra.add(p, frame().algebra.scale(p, -1.0)) is None


def test_coefficients_that_differ_by_more_than_a_rounding_of_float64_are_different():
    algebra = frame().algebra
    x = atom()
    assert same(algebra.scale(x, 1.0), algebra.scale(x, 1.0 + 2.0**-50))
    assert not same(algebra.scale(x, 1.0), algebra.scale(x, 1.0 + 2.0**-30))
    left = algebra.add(x, algebra.scale(x, -(1.0 - 2.0**-24)))
    assert left


def test_sums_under_a_root_are_recognised_term_by_term():
    algebra = frame().algebra
    one = power(algebra.add(mean_of_squares(), constant(1e-5)), "-1/2")
    again = power(algebra.add(constant(1e-5), mean_of_squares()), "-1/2")
    other = power(algebra.add(mean_of_squares(), constant(1.0000001e-5)), "-1/2")
    assert one is not None
    assert again is not None
    assert other is not None
    assert same(one, again)
    assert not same(one, other)


def test_a_coefficient_that_varies_along_an_axis_does_not_come_out_of_its_mean():
    algebra = frame().algebra
    scaled = algebra.scale(atom(), np.arange(1.0, 5.0).reshape(1, 4))
    assert algebra.mean(scaled, frozenset({1})) is None
    assert algebra.mean(scaled, frozenset({0})) is not None


def test_a_mean_of_means_over_other_axes_is_the_mean_over_both():
    algebra = frame().algebra
    rows = algebra.mean(atom(), frozenset({1}))
    assert rows is not None
    twice = algebra.mean(rows, frozenset({0}))
    once = algebra.mean(atom(), frozenset({0, 1}))
    assert twice is not None
    assert once is not None
    assert same(twice, once)


def test_the_work_is_bounded():
    algebra = frame().algebra
    mean = algebra.mean(atom(), frozenset({1}))
    assert mean is not None
    total = algebra.add(atom(), mean)
    assert power(total, str(MAX_EXPONENT + 1)) is None
    assert power(atom(), str(MAX_EXPONENT + 1)) is None
    long: Polynomial | None = {}
    for k in range(MAX_TERMS + 1):
        term = power(atom(), str(Fraction(k + 1, 64)))
        long = None if long is None or term is None else algebra.add(long, term)
    assert long is None
