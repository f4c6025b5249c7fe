"""Which family a recognised form belongs to, and what has to be proved before it may be rewritten.

    LayerNorm, RMSNorm   scale and bias vary over normalized axes only
    InstanceNorm         axes are all behind the second; scale and bias vary over the second only

To be proved: the output has the shape of x; the normalized sizes are known where a scale of that size must
be written; scale, bias and epsilon are not rounded more often than the model rounds them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from normfuse.algebra.frame import Traced
from normfuse.algebra.polynomial import TOLERANCE, Coefficient, coefficient_axes
from normfuse.algebra.walk import Walk
from normfuse.graph.facts import Facts
from normfuse.norms.forms import Form
from normfuse.norms.norm import Kind, Norm

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclass(frozen=True)
class Rejection:
    """A normalization that must not be rewritten as it stands, and why."""

    kind: Kind
    reason: str
    detail: str = ""


def classify(facts: Facts, found: Walk, value: ir.Value, form: Form) -> Norm | Rejection:
    """The Norm that ends in `value`, or what forbids it."""
    traced, frame = found.traced[value], found.frame
    if traced.shape != frame.shape or traced.layout != frame.base().layout:
        return Rejection(form.kind, "unknown-shape", f"{value.name!r} may not have the shape of the input")
    if not form.axes:
        return Rejection(form.kind, "normalized-size-1")
    precise = _precision(found, traced, form)
    if precise is not None:
        return precise
    nodes = spelled_nodes(found, value)
    kind, axes = _family(
        frame.shape, form, per_channel=len(frame.shape) > 3 or _is_per_channel(facts, found, nodes)
    )
    if axes is None:
        return Rejection(kind, "affine-not-normalized-axes", "scale or bias varies over other axes")
    sized = (1,) if kind == "InstanceNorm" else axes  # the axes that scale and bias lie along
    if not all(isinstance(frame.shape[k], int) for k in sized):
        sizes = " x ".join(str(frame.shape[k]) for k in sized)
        return Rejection(kind, "unknown-normalized-size", f"the scale would have the size {sizes}")
    return Norm(
        kind=kind,
        input=found.base,
        output=value,
        shape=frame.shape,
        axes=axes,
        epsilon=form.epsilon,
        scale=form.scale,
        bias=form.bias,
        dtype=frame.dtype,
        spelled=nodes,
    )


def _family(
    shape: tuple[int | str, ...], form: Form, *, per_channel: bool
) -> tuple[Kind, tuple[int, ...] | None]:
    """Kind and normalized axes; axes of size 1 belong wherever they are convenient."""
    rank = len(shape)
    affine = coefficient_axes(form.scale) | coefficient_axes(form.bias)
    spatial = frozenset(range(2, rank))
    ones = frozenset(k for k, n in enumerate(shape) if n == 1)
    dynamic = not all(isinstance(shape[k], int) for k in spatial)
    if (
        form.kind == "LayerNorm"
        and spatial
        and form.axes == spatial - ones
        and affine <= {1}
        and ((affine and per_channel) or dynamic)
    ):
        return "InstanceNorm", tuple(sorted(spatial))
    if not affine <= form.axes:
        return form.kind, None
    first = min(form.axes)
    trailing = frozenset(range(first, rank))
    return form.kind, tuple(sorted(trailing if trailing - form.axes <= ones else form.axes))


def _is_per_channel(facts: Facts, found: Walk, nodes: tuple[ir.Node, ...]) -> bool:
    """Whether a 3-D tensor's affine is stated for channels ([1, C, 1]) rather than for tokens ([T, 1]).

    Both compute the same; the first is an InstanceNorm, the second a LayerNorm with a scale for each token.
    """
    rank = len(found.frame.shape)
    constants = (v for n in nodes for v in n.inputs if v is not None and v not in found.traced)
    shapes = [facts.shapes.of(v) for v in constants]
    return any(s is not None and len(s) == rank > 1 and s[1] != 1 for s in shapes) or any(
        n.op_type in ("InstanceNormalization", "BatchNormalization") for n in nodes
    )


def _precision(found: Walk, traced: Traced, form: Form) -> Rejection | None:
    dtype = found.frame.dtype
    if traced.dtype != dtype:
        return Rejection(form.kind, "precision", f"the result is {traced.dtype.name}, the input {dtype.name}")
    if dtype == ir.DataType.FLOAT and any(t.dtype == ir.DataType.DOUBLE for t in found.traced.values()):
        return Rejection(form.kind, "precision", "it is computed in float64")
    if dtype == ir.DataType.DOUBLE and float(np.float32(form.epsilon)) != form.epsilon:
        return Rejection(form.kind, "epsilon-not-representable", f"epsilon {form.epsilon!r} is no float32")
    if form.epsilon and not float(np.float32(form.epsilon)) > 0:
        return Rejection(form.kind, "epsilon-not-representable", f"epsilon {form.epsilon:g} is 0 in float32")
    if dtype in _HALF and not (_fits(form.scale, dtype) and _fits(form.bias, dtype)):
        return Rejection(form.kind, "precision", f"scale or bias would be rounded to {dtype.name}")
    return None


def _fits(coefficient: Coefficient, dtype: ir.DataType) -> bool:
    """Whether a parameter is stored without rounding (beyond float64's own)."""
    values = np.asarray(coefficient, dtype=np.float64)
    with np.errstate(over="ignore"):
        stored = values.astype(dtype.numpy()).astype(np.float64)
    return bool(np.all(np.abs(stored - values) <= TOLERANCE * np.abs(values)))


def spelled_nodes(found: Walk, end: ir.Value, stop: frozenset[ir.Value] = frozenset()) -> tuple[ir.Node, ...]:
    """The nodes between the base and `end`, in the order in which they were traced."""
    needed: set[ir.Value] = set()
    queue = [end]
    while queue:
        value = queue.pop()
        if value in needed or value is found.base or value in stop or value not in found.traced:
            continue
        needed.add(value)
        producer = value.producer()
        queue.extend(v for v in (producer.inputs if producer else ()) if v is not None)
    return tuple(p for v in found.traced if v in needed and (p := v.producer()) is not None)
