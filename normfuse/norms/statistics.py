"""Statistics of a LayerNorm that something else reads too: its mean, and 1 / sqrt(variance + epsilon).

    before   ReduceMean -> Mean (an output)        Sqrt -> Reciprocal -> InvStdDev (an output)
    after    LayerNormalization -> y, Mean, InvStdDev

LayerNormalization has both as further outputs, in float32, so they need not keep the norm from being fused.
Only values that hold exactly these, in the shape of x with 1 for each normalized dimension, and that are read
behind the norm: a reader before it could not wait for it.
"""

from __future__ import annotations

from fractions import Fraction

import onnx_ir as ir

from normfuse.algebra.atoms import Mean, Monomial
from normfuse.algebra.coefficient import agree
from normfuse.algebra.walk import Order, Walk
from normfuse.norms.forms import Form, recognise
from normfuse.norms.norm import Norm

_MINUS_HALF = Fraction(-1, 2)


def statistics_read(found: Walk, norm: Norm, order: Order) -> dict[str, ir.Value]:
    """The values of a walk that are the "mean" and the "inverse" deviation of a norm and are read outside."""
    traced_end = found.traced[norm.output]
    form = recognise(found.frame, traced_end.polynomial)
    fits = norm.kind == "LayerNorm" and norm.is_trailing and norm.dtype == ir.DataType.FLOAT
    if not fits or norm.deviation_epsilon or not isinstance(form, Form):
        return {}
    wanted = {_mean(found, form): "mean", _inverse(found, norm, form): "inverse"}
    layout = tuple(() if k in norm.axes else group for k, group in enumerate(traced_end.layout))
    statistics: dict[str, ir.Value] = {}
    for value, traced in found.traced.items():
        ((monomial, coefficient), *more) = traced.polynomial.items() or [(None, 0.0)]
        name = wanted.get(monomial) if not more and agree(coefficient, 1.0) else None
        if name is None or name in statistics or (traced.layout, traced.dtype) != (layout, norm.dtype):
            continue
        if _is_read_behind(value, norm, order):
            statistics[name] = value
    return statistics


def _mean(found: Walk, form: Form) -> Monomial | None:
    algebra = found.frame.algebra
    mean = Mean(((algebra.base, 1),), form.axes)
    return next((((k, 1),) for k, atom in enumerate(algebra.atoms) if atom == mean), None)


def _inverse(found: Walk, norm: Norm, form: Form) -> Monomial | None:
    """The root that the norm divides by, if no factor stands beside the variance in it."""
    base = (found.frame.algebra.base, 1)
    for monomial, scale in found.traced[norm.output].polynomial.items():
        rest = [factor for factor in monomial if factor != base]
        if base in monomial and len(rest) == 1 and rest[0][1] == _MINUS_HALF and agree(scale, form.scale):
            return (rest[0],)
    return None


def _is_read_behind(value: ir.Value, norm: Norm, order: Order) -> bool:
    """Whether something outside of a norm reads a value, and only behind the norm."""
    producer = norm.output.producer()
    outside = [node for node in value.consumers() if node not in norm.spelled]
    if producer is None or not (outside or value.is_graph_output()):
        return False
    return all(order.get(node, -1) > order[producer] for node in outside)
