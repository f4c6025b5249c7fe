"""Reductions: ReduceMean ReduceSum ReduceSumSquare ReduceL1 ReduceL2 GlobalAveragePool.

ReduceMean(p)      = Mean(p)
ReduceSum(p)       = N * Mean(p)               N from the operand's own shape
ReduceSumSquare(p) = N * Mean(p^2)
ReduceL2(p)        = (N * Mean(p^2))^(1/2)
ReduceL1(p)        = N * Mean(|p|)
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import onnx_ir as ir

from normfuse.algebra.atoms import Mean, Polynomial
from normfuse.algebra.frame import End, Traced
from normfuse.algebra.operators.context import Context, Operator
from normfuse.algebra.polynomial import Algebra
from normfuse.algebra.refinement import product
from normfuse.graph.facts import Facts

_Prepare = Callable[[Algebra, Polynomial], Polynomial | None]


def axes_of(facts: Facts, node: ir.Node, rank: int) -> frozenset[int] | None:
    """The dimensions that a reduction reduces, counted from 0; None when they are not constant.

    Axes are an attribute up to opset 17 (12 for ReduceSum) and an input after; none, or an empty list,
    means all of them unless noop_with_empty_axes says none at all.
    """
    axes: tuple[int, ...] | None = ()
    if "axes" in node.attributes:
        axes = tuple(node.attributes.get_ints("axes") or ())
    elif len(node.inputs) > 1 and node.inputs[1] is not None:
        axes = facts.static_integers(node.inputs[1])
    if axes is None or any(not -rank <= a < rank for a in axes):
        return None
    if not axes:
        return frozenset() if node.attributes.get_int("noop_with_empty_axes", 0) else frozenset(range(rank))
    return frozenset(a % rank for a in axes)


def _reduce(prepare: _Prepare, *, total: bool, root: bool = False) -> Operator:
    def operator(context: Context, node: ir.Node) -> Traced | End:
        x = context.first(node)
        positions = axes_of(context.facts, node, len(x.layout))
        if positions is None:
            if len(node.inputs) > 1 and context.facts.constants.depends_on_overridable(node.inputs[1]):
                return End("overridable-initializer", "the axes are a graph input as well")
            return End("", "the axes are not constant")
        keep = bool(node.attributes.get_int("keepdims", 1))
        return reduce(context, node, x, positions, prepare, keep=keep, total=total, root=root)

    return operator


def reduce(context: Context, node: ir.Node, x: Traced, positions: frozenset[int], prepare: _Prepare, *,
           keep: bool, total: bool = False, root: bool = False) -> Traced | End:  # fmt: skip
    """A reduction of a traced value over dimensions `positions` of it."""
    algebra = context.frame.algebra
    if any(e < 0 and algebra.contains({((n, 1),): 1.0}, Mean) for m in x.polynomial for n, e in m):
        return End()  # the statistic of a normalized value is that of a norm with a base of its own
    axes = frozenset(axis for k in positions for axis in x.layout[k])
    inner = prepare(algebra, x.polynomial)
    result = None if inner is None else algebra.mean(inner, axes)
    if result is None:
        return End("", "not exact, or a coefficient varies along the reduced axes")
    dims = tuple(context.frame.sizes[axis] for axis in sorted(axes))
    number, symbols = product(dims)
    if not symbols:
        context.frame.reduced.add(number)
    if total:
        result = algebra.multiply(result, context.size(dims))
    if root and result is not None:
        result = algebra.power(result, Fraction(1, 2))
    kept = [k for k in range(len(x.layout)) if keep or k not in positions]
    layout = tuple(() if k in positions else x.layout[k] for k in kept)
    return context.result(node, result, layout, tuple(1 if k in positions else x.shape[k] for k in kept))


def itself(_: Algebra, p: Polynomial) -> Polynomial | None:
    """p."""
    return p


def squared(algebra: Algebra, p: Polynomial) -> Polynomial | None:
    """p^2."""
    return algebra.multiply(p, p)


def _magnitude(algebra: Algebra, p: Polynomial) -> Polynomial | None:
    if algebra.is_nonnegative(p):
        return p
    square = algebra.multiply(p, p) if len(p) == 1 else None
    return None if square is None else algebra.power(square, Fraction(1, 2))


def _global_average_pool(context: Context, node: ir.Node) -> Traced | End:
    x = context.first(node)
    return reduce(context, node, x, frozenset(range(2, len(x.layout))), itself, keep=True)


REDUCTIONS: dict[str, Operator] = {
    "ReduceMean": _reduce(itself, total=False),
    "ReduceSum": _reduce(itself, total=True),
    "ReduceSumSquare": _reduce(squared, total=True),
    "ReduceL1": _reduce(_magnitude, total=True),
    "ReduceL2": _reduce(squared, total=True, root=True),
    "GlobalAveragePool": _global_average_pool,
}
