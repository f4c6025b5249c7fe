"""The laws of the algebra: what it says that a chain of operators computes is what the chain computes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from chains import SHAPES, STEPS, Chain, Step, build
from evaluation import Evaluation
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from normfuse.algebra.atoms import Polynomial, same
from normfuse.algebra.frame import Frame
from normfuse.algebra.polynomial import constant
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


# -- a walk against the operators that it walked over ------------------------------------------------------

steps = st.lists(
    st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 5), st.integers(0, 29), st.integers(0, 59)),
    min_size=2,
    max_size=10,
)


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
    point = Evaluation(
        found.frame, actual[found.base.name], {v: actual[v.name] for v in values if v.name in actual}
    )
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
@settings(max_examples=6_000)
def test_a_long_search_finds_no_walk_that_is_wrong(shape, drawn):
    assert_walk_is_right(shape, drawn)


# -- polynomials among themselves --------------------------------------------------------------------------


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
    st.lists(st.sampled_from([1.0, -2.0, 0.25]), min_size=4, max_size=4).map(
        lambda v: np.array(v).reshape(1, 4)
    ),
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
