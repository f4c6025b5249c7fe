"""Elementwise operators: Add Sub Mul Div Neg Sqrt Reciprocal Pow Abs Max Clip Relu Cast Identity …"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from normfuse.algebra.atoms import Exponent, Mean, Polynomial, as_whole
from normfuse.algebra.frame import End, Traced
from normfuse.algebra.operators.context import Context, Operator
from normfuse.algebra.polynomial import Algebra
from normfuse.algebra.refinement import Layout

_Combine = Callable[[Algebra, Polynomial, Polynomial], Polynomial | None]
HALF = as_whole(Fraction(1, 2))
_WIDTH = {ir.DataType.BFLOAT16: 1, ir.DataType.FLOAT16: 1, ir.DataType.FLOAT: 2, ir.DataType.DOUBLE: 3}


def _add(algebra: Algebra, p: Polynomial, q: Polynomial) -> Polynomial | None:
    return algebra.add(p, q)


def _sub(algebra: Algebra, p: Polynomial, q: Polynomial) -> Polynomial | None:
    return algebra.add(p, algebra.scale(q, -1.0))


def _mul(algebra: Algebra, p: Polynomial, q: Polynomial) -> Polynomial | None:
    return algebra.multiply(p, q)


def _div(algebra: Algebra, p: Polynomial, q: Polynomial) -> Polynomial | None:
    inverse = algebra.power(q, -1)
    return None if inverse is None else algebra.multiply(p, inverse)


def _binary(combine: _Combine) -> Operator:
    def operator(context: Context, node: ir.Node) -> Traced | End:
        operands = _operands(context, node.inputs[0], node.inputs[1])
        if isinstance(operands, End):
            return operands
        p, q, layout = operands
        result = combine(context.frame.algebra, p, q)
        return context.result(node, result, layout)

    return operator


def _operands(
    context: Context, left: ir.Value | None, right: ir.Value | None
) -> tuple[Polynomial, Polynomial, Layout] | End:
    """Both operands as polynomials of the frame, and the layout of what they broadcast to."""
    a, b = context.get(left), context.get(right)
    if a is not None and b is not None:
        layout = context.frame.broadcast(a.layout, b.layout)
        return layout if isinstance(layout, End) else (a.polynomial, b.polynomial, layout)
    known, other = (a, right) if a is not None else (b, left)
    assert known is not None
    if other is None:
        return End()
    found = other_operand(context, other, known)
    if isinstance(found, End):
        return found
    p, layout = found
    return (known.polynomial, p, layout) if a is not None else (p, known.polynomial, layout)


def other_operand(context: Context, value: ir.Value, beside: Traced) -> tuple[Polynomial, Layout] | End:
    """An operand that is not traced: constant, a number from shape arithmetic, or opaque."""
    array = context.constant(value)
    if array is None:
        number = context.scalar_integer(value)
        if number is not None:
            return number, beside.layout
        if context.facts.constants.depends_on_overridable(value):
            return End("overridable-initializer", f"{value.name!r} is also a graph input")
        return context.opaque(value, beside.layout, beside.polynomial)
    if array.dtype.kind not in "fiuV" or not np.all(np.isfinite(np.asarray(array, dtype=np.float64))):
        return End()
    layout = context.frame.extended(beside.layout, array.shape)
    if isinstance(layout, End):
        return layout
    polynomial = context.frame.constant(context.exact(array), layout)
    return End() if polynomial is None else (polynomial, layout)


def _unary(exponent: Exponent) -> Operator:
    def operator(context: Context, node: ir.Node) -> Traced | End:
        x = context.first(node)
        return context.result(node, context.frame.algebra.power(x.polynomial, exponent), x.layout)

    return operator


def _neg(context: Context, node: ir.Node) -> Traced | End:
    x = context.first(node)
    return context.result(node, context.frame.algebra.scale(x.polynomial, -1.0), x.layout)


def _identity(context: Context, node: ir.Node) -> Traced | End:
    return context.first(node)


def _quantize(_: Context, __: ir.Node) -> Traced | End:
    return End("qdq-boundary", "a value inside is quantized")


def _dropout(context: Context, node: ir.Node) -> Traced | End:
    training = context.constant(node.inputs[2]) if len(node.inputs) > 2 else np.array(False)
    if training is None or bool(np.any(training)) or any(out.uses() for out in node.outputs[1:]):
        return End()
    return context.first(node)


def _cast(context: Context, node: ir.Node) -> Traced | End:
    """An up-cast is transparent; back to the base's own type it is one more rounding; below it ends."""
    x = context.first(node)
    target = context.facts.shapes.dtype(node.outputs[0])
    if target not in _WIDTH or context.frame.dtype not in _WIDTH:
        return End()
    if target != context.frame.dtype and _WIDTH[target] <= _WIDTH[context.frame.dtype]:
        return End("precision", f"a cast to {target.name} inside")
    return Traced(x.polynomial, x.layout, x.shape, target)


def _pow(context: Context, node: ir.Node) -> Traced | End:
    base, exponent = node.inputs[0], node.inputs[1]
    x = context.get(base)
    if x is None:
        return End()
    if context.constant(exponent) is None:
        if context.facts.constants.depends_on_overridable(exponent):
            return End("overridable-initializer", f"the exponent {exponent.name!r} is also a graph input")  # type: ignore[union-attr]
        return End("exponent-not-constant", f"the exponent {exponent.name!r} is computed at run time")  # type: ignore[union-attr]
    power = context.facts.constants.scalar(exponent)
    if power is None or not np.isfinite(power) or power == 0:
        return End("exponent!=2", "the exponent is not one number")
    expanded = _expands(context, x, exponent)
    if expanded is not None:
        return expanded
    exact = Fraction(power).limit_denominator(64)
    if float(exact) != power:
        return End("exponent!=2", f"the exponent is {power:g}")
    return context.result(node, context.frame.algebra.power(x.polynomial, exact), x.layout)


def _expands(context: Context, x: Traced, operand: ir.Value | None) -> End | None:
    """An End where a constant operand is not known to broadcast into the traced value."""
    shape = context.facts.shapes.of(operand)
    layout = End() if shape is None else context.frame.extended(x.layout, shape)
    if isinstance(layout, End):
        return layout
    return None if layout == x.layout else End("affine-expands-shape", "an operand enlarges the tensor")


def _abs(context: Context, node: ir.Node) -> Traced | End:
    x = context.first(node)
    algebra = context.frame.algebra
    if algebra.is_nonnegative(x.polynomial) or _is_square(context, node.inputs[0]):
        return x
    square = algebra.multiply(x.polynomial, x.polynomial) if len(x.polynomial) == 1 else None
    return context.result(node, None if square is None else algebra.power(square, HALF), x.layout)


def _is_square(context: Context, value: ir.Value | None) -> bool:
    """Whether a value is written as a square on the walk: multiplied out, it no longer looks like one."""
    node = None if value is None else value.producer()
    if node is None or len(node.inputs) != 2 or context.get(node.inputs[0]) is None:
        return False
    if node.op_type == "Pow":
        return context.facts.constants.scalar(node.inputs[1]) == 2
    return node.op_type == "Mul" and node.inputs[0] is node.inputs[1]


def _max(context: Context, node: ir.Node) -> Traced | End:
    if len(node.inputs) != 2:
        return End()
    traced = [v for v in node.inputs if context.get(v) is not None]
    others = [v for v in node.inputs if context.get(v) is None]
    if len(traced) != 1:
        return End()
    expanded = _expands(context, context.first_traced(node), others[0])
    if expanded is not None:
        return expanded
    return _clamped(context, node, context.first_traced(node), context.facts.constants.scalar(others[0]))


def _clip(context: Context, node: ir.Node) -> Traced | End:
    x = context.first(node)
    if len(node.inputs) > 1 or "min" not in node.attributes:
        least = context.facts.constants.scalar(node.inputs[1]) if len(node.inputs) > 1 else None
        most = node.inputs[2] if len(node.inputs) > 2 else None
        unbounded = most is None or _is_unreachable(context.facts.constants.scalar(most))
    else:
        least = node.attributes.get_float("min")
        unbounded = _is_unreachable(node.attributes.get_float("max", np.inf))
    return _clamped(context, node, x, least if unbounded else None)


def _is_unreachable(most: float | None) -> bool:
    """Whether an upper bound is one that only infinity exceeds (opset 6 writes the largest float32)."""
    return most is not None and most >= float(np.finfo(np.float32).max)


def _relu(context: Context, node: ir.Node) -> Traced | End:
    return _clamped(context, node, context.first(node), 0.0)


def _clamped(context: Context, node: ir.Node, x: Traced, least: float | None) -> Traced | End:
    """max(x, least), of a statistic: a walk does not go on behind the activation of a normalized tensor."""
    algebra = context.frame.algebra
    if least is None or not np.isfinite(least) or not algebra.contains(x.polynomial, Mean):
        return End()
    if len(algebra.axes(x.polynomial)) == len(context.frame.sizes):
        return End()
    return context.result(node, algebra.clamp(x.polynomial, least), x.layout)


def _sum(context: Context, node: ir.Node) -> Traced | End:
    return _binary(_add)(context, node) if len(node.inputs) == 2 else End()


ELEMENTWISE: dict[str, Operator] = {
    "Add": _binary(_add),
    "Sub": _binary(_sub),
    "Mul": _binary(_mul),
    "Div": _binary(_div),
    "Sum": _sum,
    "Neg": _neg,
    "Sqrt": _unary(HALF),
    "Reciprocal": _unary(-1),
    "Pow": _pow,
    "Abs": _abs,
    "Max": _max,
    "Clip": _clip,
    "Relu": _relu,
    "Identity": _identity,
    "QuantizeLinear": _quantize,
    "Dropout": _dropout,
    "Cast": _cast,
    "CastLike": _cast,
}
