"""Operators that only move values: Reshape Squeeze Unsqueeze Flatten Expand Transpose."""

from __future__ import annotations

import onnx_ir as ir

from normfuse.algebra.frame import End, Traced, relabelled
from normfuse.algebra.operators.context import Context, Operator


def _reshape(context: Context, node: ir.Node) -> Traced | End:
    """Follow a Reshape (Squeeze, Unsqueeze, Flatten) that adds or drops dimensions of size 1."""
    x = context.first(node)
    target = context.facts.shapes.of(node.outputs[0])
    layout = None if target is None else relabelled(x.layout, x.shape, target)
    if target is None or layout is None:
        return End("", "a view of other dimensions")
    return Traced(x.polynomial, layout, context.shape_of(layout), x.dtype)


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
}
