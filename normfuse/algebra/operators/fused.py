"""Operators that are fused already, written out: LayerNormalization, RMSNormalization, BatchNormalization …

    LayerNormalization     s * (x - Mean(x)) * (Mean((x - Mean(x))^2) + eps)^(-1/2) + b
    RMSNormalization       s * x * (Mean(x^2) + eps)^(-1/2)
    InstanceNormalization  LayerNormalization over the spatial axes, s and b along axis 1
    BatchNormalization     x * A + B along axis 1, in inference

So a half-finished fusion is one polynomial with its surroundings, and can be finished: torch's exporter
turns a LayerNorm into ReduceMean, Sub, RMSNormalization, Add at opset 23.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx_ir as ir

from normfuse.algebra.atoms import Polynomial
from normfuse.algebra.frame import End, Traced
from normfuse.algebra.operators.context import Context, Operator
from normfuse.algebra.operators.elementwise import other_operand
from normfuse.algebra.polynomial import Algebra, constant


def _normalized(algebra: Algebra, p: Polynomial, axes: frozenset[int], epsilon: float, *, centred: bool
                ) -> Polynomial | None:  # fmt: skip
    """(p - Mean(p)) / sqrt(variance + epsilon), or the same without the mean."""
    deviation: Polynomial | None = p
    if centred:
        mean = algebra.mean(p, axes)
        deviation = None if mean is None else algebra.add(p, algebra.scale(mean, -1.0))
    square = None if deviation is None else algebra.multiply(deviation, deviation)
    variance = None if square is None else algebra.mean(square, axes)
    total = None if variance is None else algebra.add(variance, constant(epsilon) if epsilon else {})
    inverse = None if total is None else algebra.power(total, Fraction(-1, 2))
    return None if inverse is None or deviation is None else algebra.multiply(deviation, inverse)


def _affine(context: Context, core: Traced, scale: ir.Value | None, bias: ir.Value | None) -> Traced | End:
    algebra = context.frame.algebra
    polynomial: Polynomial | None = core.polynomial
    for value, combine in ((scale, algebra.multiply), (bias, algebra.add)):
        if value is None or polynomial is None:
            continue
        operand = other_operand(context, value, core)
        if isinstance(operand, End):
            return operand
        if operand[1] != core.layout:
            return End("affine-expands-shape")
        polynomial = combine(polynomial, operand[0])
    return End() if polynomial is None else Traced(polynomial, core.layout, core.shape, core.dtype)


def _layer_norm(*, centred: bool) -> Operator:
    def operator(context: Context, node: ir.Node) -> Traced | End:
        x = context.get(node.inputs[0])
        if x is None or any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
            return End()
        axis = node.attributes.get_int("axis", -1)
        rank = len(x.layout)
        if not -rank <= axis < rank:
            return End()
        axes = frozenset(a for group in x.layout[axis % rank :] for a in group)
        epsilon = float(np.float32(node.attributes.get_float("epsilon", 1e-5)))
        core = _normalized(context.frame.algebra, x.polynomial, axes, epsilon, centred=centred)
        if core is None:
            return End()
        bias = node.inputs[2] if centred and len(node.inputs) > 2 else None
        dtype = context.facts.shapes.dtype(node.outputs[0]) or x.dtype
        return _affine(context, Traced(core, x.layout, x.shape, dtype), node.inputs[1], bias)

    return operator


def _per_channel(context: Context, x: Traced, value: ir.Value | None) -> Polynomial | None:
    """A constant vector along dimension 1 of a traced value."""
    array = context.constant(value)
    if array is None or array.ndim != 1 or len(x.layout) < 2:
        return None
    shaped = np.asarray(array, dtype=np.float64).reshape([-1] + [1] * (len(x.layout) - 2))
    if not x.layout[1] and shaped.size != 1:
        return None
    return context.frame.constant(shaped, x.layout)


def _instance_norm(context: Context, node: ir.Node) -> Traced | End:
    x = context.get(node.inputs[0])
    if x is None:
        return End()
    algebra = context.frame.algebra
    scale, bias = (_per_channel(context, x, v) for v in node.inputs[1:3])
    axes = frozenset(a for group in x.layout[2:] for a in group)
    epsilon = float(np.float32(node.attributes.get_float("epsilon", 1e-5)))
    core = _normalized(algebra, x.polynomial, axes, epsilon, centred=True)
    if core is None or scale is None or bias is None:
        return End()
    scaled = algebra.multiply(core, scale)
    return context.result(node, None if scaled is None else algebra.add(scaled, bias), x.layout, x.shape)


def _batch_norm(context: Context, node: ir.Node) -> Traced | End:
    x = context.get(node.inputs[0])
    training = node.attributes.get_int("training_mode", 0) or node.attributes.get_int("is_test", 1) == 0
    if x is None or training or len(node.inputs) != 5 or not node.attributes.get_int("spatial", 1):
        return End()
    if any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
        return End()
    arrays = [context.constant(v) for v in node.inputs[1:]]
    if any(a is None for a in arrays):
        return End()
    gamma, beta, mean, variance = (np.asarray(a, dtype=np.float64) for a in arrays)
    epsilon = float(np.float32(node.attributes.get_float("epsilon", 1e-5)))
    with np.errstate(all="ignore"):
        slope = gamma / np.sqrt(variance + epsilon)
        shift = beta - mean * slope
    if not np.all(np.isfinite(slope) & np.isfinite(shift)) or (x.layout[1:2] == ((),) and slope.size != 1):
        return End()
    trailing = [-1] + [1] * (len(x.layout) - 2)
    algebra = context.frame.algebra
    a = context.frame.constant(slope.reshape(trailing), x.layout)
    b = context.frame.constant(shift.reshape(trailing), x.layout)
    scaled = None if a is None else algebra.multiply(x.polynomial, a)
    return context.result(
        node, None if scaled is None or b is None else algebra.add(scaled, b), x.layout, x.shape
    )


FUSED: dict[str, Operator] = {
    "LayerNormalization": _layer_norm(centred=True),
    "RMSNormalization": _layer_norm(centred=False),
    "SimplifiedLayerNormalization": _layer_norm(centred=False),
    "InstanceNormalization": _instance_norm,
    "BatchNormalization": _batch_norm,
}
