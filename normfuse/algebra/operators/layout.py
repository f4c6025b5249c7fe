"""Operators that only move values: Reshape Squeeze Unsqueeze Flatten Expand Transpose Gather."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from normfuse.algebra.frame import End, Traced
from normfuse.algebra.operators.context import Context, Operator
from normfuse.graph.shapes import Dim


def _reshape(context: Context, node: ir.Node) -> Traced | End:
    """Follow a Reshape (Squeeze, Unsqueeze, Flatten) that keeps every axis of the frame whole."""
    x = context.first(node)
    target = context.facts.shapes.of(node.outputs[0])
    return End() if target is None else _regrouped(context, x, target)


def _regrouped(context: Context, x: Traced, target: tuple[Dim, ...]) -> Traced | End:
    layout = context.frame.reshaped(x.layout, target)
    if layout is None:
        return End("", "a view that splits an axis")
    return Traced(x.polynomial, layout, context.frame.shape_of(layout), x.dtype)


def _gather(context: Context, node: ir.Node) -> Traced | End:
    """A Gather by 0, 1, 2, … is a Reshape: so torch's decompositions write a strided view."""
    x = context.first(node)
    indices = context.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if indices is None or len(x.layout) != 1 or node.attributes.get_int("axis", 0) not in (0, -1):
        return End()
    if indices.size != x.shape[0] or not np.array_equal(indices.reshape(-1), np.arange(indices.size)):
        return End()
    return _regrouped(context, x, indices.shape)


def _expand(context: Context, node: ir.Node) -> Traced | End:
    """Follow an Expand whose new dimensions are those of the base value."""
    x = context.first(node)
    target = context.facts.shapes.of(node.outputs[0])
    if target is None:
        return End()
    if target == context.facts.shapes.of(node.inputs[0]):
        return x
    layout = context.frame.extended(x.layout, target)
    return layout if isinstance(layout, End) else Traced(x.polynomial, layout, target, x.dtype)


def _transpose(context: Context, node: ir.Node) -> Traced | End:
    x = context.first(node)
    order = tuple(node.attributes.get_ints("perm") or reversed(range(len(x.layout))))
    if sorted(order) != list(range(len(x.layout))):
        return End()
    layout = tuple(x.layout[k] for k in order)
    return Traced(x.polynomial, layout, tuple(x.shape[k] for k in order), x.dtype)


LAYOUT: dict[str, Operator] = {
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Flatten": _reshape,
    "Expand": _expand,
    "Transpose": _transpose,
    "Gather": _gather,
}
