"""The laws of the algebra: what it says that a chain of operators computes is what the chain computes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx_ir as ir
import pytest
from chains import SHAPES, STEPS, Chain, Step, build
from evaluation import Evaluation
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from normfuse.algebra.frame import Frame
from normfuse.algebra.polynomial import (
    MAX_EXPONENT,
    MAX_TERMS,
    Algebra,
    Polynomial,
    constant,
    constant_of,
    same,
)
from normfuse.algebra.walk import Walk, node_order, walk
from normfuse.graph.facts import Facts

SIZE = (3, 4)


class RMSNormalization(OpRun):  # type: ignore[misc]
    """In float64, where ONNX's own reference goes through float32."""

    def _run(self, x, scale, epsilon=1e-5, **_):  # type: ignore[no-untyped-def]
        return (x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * scale,)


class LayerNormalization(OpRun):  # type: ignore[misc]
    """In float64."""

    def _run(self, x, scale, bias, epsilon=1e-5, **_):  # type: ignore[no-untyped-def]
        d = x - np.mean(x, axis=-1, keepdims=True)
        return (d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + epsilon) * scale + bias,)


# -- a walk against the operators that it walked over ------------------------------------------------------------

steps = st.lists(
    st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 5), st.integers(0, 29), st.integers(0, 59)),
    min_size=2, max_size=10,
)  # fmt: skip


def traced(chain: Chain) -> Walk | None:
    """The walk over a chain from x, or from the first view of it."""
    model = ir.from_proto(chain.model())
    (x,) = (v for v in model.graph.inputs if v.name == "x")
    first = model.graph[0]
    is_view = first.op_type == "Reshape" and first.inputs[0] is x
    return walk(Facts(model), first.outputs[0] if is_view else x, node_order(model.graph))


def computed(chain: Chain, x: np.ndarray, z: np.ndarray) -> dict[str, np.ndarray]:
    """Every value of a chain by ONNX's reference operators in float64."""
    proto = chain.model()
    evaluator = ReferenceEvaluator(proto, new_ops=[RMSNormalization, LayerNormalization])
    with np.errstate(all="ignore"):
        values = evaluator.run(None, {"x": x, "z": z})
    return dict(zip([o.name for o in proto.graph.output], values, strict=True)) | {"x": x, "z": z}


def assert_walk_is_right(shape: tuple[int, ...], drawn: list[Step]) -> int:
    """Hold every polynomial of a walk against the operators; returns how many there were."""
    chain = build(shape, drawn)
    found = traced(chain) if chain.nodes else None
    if found is None:
        return 0
    rng = np.random.default_rng(0)
    x, z = rng.normal(0.5, 1, shape), rng.normal(0.5, 1, shape)
    actual = computed(chain, x, z)
    moved = computed(chain, x * (1 + 1e-12 * rng.normal(size=shape)), z)
    graph = (found.source or found.base).graph
    values = (*graph.inputs, *(o for n in graph for o in n.outputs))
    point = Evaluation(found.frame, actual[found.base.name], {v: actual[v.name] for v in values if v.name in actual})
    for value, known in found.traced.items():
        with np.errstate(all="ignore"):
            _assert_equal(value.name, point.value(known), actual[value.name], moved[value.name])
        assert tuple(known.shape) == actual[value.name].shape
    return len(found.traced) - 1


def _assert_equal(name: str, found: np.ndarray, actual: np.ndarray, moved: np.ndarray) -> None:
    """Equal, NaN where it is NaN, except where the chain itself has lost all its digits."""
    assert found.shape == actual.shape, name
    huge = (~np.isfinite(actual) | (np.abs(actual) > 1e9)) & (~np.isfinite(found) | (np.abs(found) > 1e9))
    shaky = ~np.isclose(actual, moved, rtol=1e-8, atol=1e-8, equal_nan=True)
    equal = np.isclose(actual, found, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert np.all(equal | huge | shaky), f"{name}: {found} is not {actual}"


@given(shape=st.sampled_from(SHAPES), drawn=steps)
@settings(max_examples=400)
def test_a_walk_computes_what_the_operators_compute(shape, drawn):
    assert_walk_is_right(shape, drawn)


@pytest.mark.slow
@given(shape=st.sampled_from(SHAPES), drawn=steps)
@settings(max_examples=15_000)
def test_a_long_search_finds_no_walk_that_is_wrong(shape, drawn):
    assert_walk_is_right(shape, drawn)


# -- polynomials among themselves --------------------------------------------------------------------------------


def power(p: Polynomial | None, exponent: str) -> Polynomial | None:
    """p to a power, if the algebra will."""
    return None if p is None else Algebra.power(frame().algebra, p, Fraction(exponent))


FRAME: list[Frame] = []


def frame() -> Frame:
    """The frame of all polynomials of one test."""
    return FRAME[-1]


@pytest.fixture(autouse=True)
def _fresh_frame():
    FRAME.append(Frame(SIZE, ir.DataType.DOUBLE))
    yield
    FRAME.pop()


coefficients = st.one_of(
    st.sampled_from([1.0, -1.0, 2.0, 0.5, -3.0, 1e-5]),
    st.lists(st.sampled_from([1.0, -2.0, 0.25]), min_size=4, max_size=4).map(lambda v: np.array(v).reshape(1, 4)),
)
terms = st.lists(st.tuples(coefficients, st.integers(0, 3), st.booleans()), min_size=0, max_size=3)


def polynomial(drawn: list[tuple[float | np.ndarray, int, bool]]) -> Polynomial:
    """A small polynomial of x and Mean(x)."""
    algebra = frame().algebra
    x: Polynomial = frame().base().polynomial
    mean = algebra.mean(x, frozenset({1}))
    total: Polynomial = {}
    for coefficient, degree, averaged in drawn:
        term = constant(1.0)
        for _ in range(degree):
            product = algebra.multiply(term, mean if averaged and mean is not None else x)
            assert product is not None
            term = product
        added = algebra.add(total, algebra.scale(term, coefficient))
        assert added is not None
        total = added
    return total


@given(terms, terms)
@settings(max_examples=100)
def test_addition_and_multiplication_commute(a, b):
    p, q = polynomial(a), polynomial(b)
    for combine in (frame().algebra.add, frame().algebra.multiply):
        left, right = combine(p, q), combine(q, p)
        assert (left is None) == (right is None)
        assert left is None or right is None or same(left, right)


@given(terms, terms, terms)
@settings(max_examples=100)
def test_addition_and_multiplication_are_associative(a, b, c):
    p, q, r = polynomial(a), polynomial(b), polynomial(c)
    for combine in (frame().algebra.add, frame().algebra.multiply):
        first, last = combine(p, q), combine(q, r)
        left = None if first is None else combine(first, r)
        right = None if last is None else combine(p, last)
        assert left is None or right is None or close(left, right)


@given(terms, terms, terms)
@settings(max_examples=100)
def test_multiplication_distributes_over_addition(a, b, c):
    algebra = frame().algebra
    p, q, r = polynomial(a), polynomial(b), polynomial(c)
    total = algebra.add(q, r)
    left = None if total is None else algebra.multiply(p, total)
    one, other = algebra.multiply(p, q), algebra.multiply(p, r)
    right = None if one is None or other is None else algebra.add(one, other)
    assert left is None or right is None or close(left, right)


@given(terms, terms)
@settings(max_examples=100)
def test_a_mean_is_linear(a, b):
    algebra = frame().algebra
    axes = frozenset({0})
    p, q = polynomial(a), polynomial(b)
    total = algebra.add(p, q)
    together = None if total is None else algebra.mean(total, axes)
    one, other = algebra.mean(p, axes), algebra.mean(q, axes)
    apart = None if one is None or other is None else algebra.add(one, other)
    assert together is None or apart is None or close(together, apart)


def close(p: Polynomial, q: Polynomial) -> bool:
    """The same value, whatever order of rounding led to it."""
    x = np.random.default_rng(5).normal(0.5, 1, SIZE)
    point = Evaluation(frame(), x)
    return bool(np.allclose(point.polynomial(p), point.polynomial(q), rtol=1e-9, atol=1e-9))


# -- the domain --------------------------------------------------------------------------------------------------


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
