"""Which family a recognised form belongs to, and what has to be proved before it may be rewritten.

    LayerNorm, RMSNorm   scale and bias vary over normalized axes only
    InstanceNorm         axes are all behind the second; scale and bias vary over the second only
    BatchStatistics      the first axis is normalized as well: there is no fused operator

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
    nodes = spelled_nodes(found, value)
    precise = _precision(found, traced, form, nodes)
    if precise is not None:
        return precise
    kind, axes = _family(
        frame.shape, form, per_channel=len(frame.shape) > 3 or _is_per_channel(facts, found, nodes)
    )
    if axes is None:
        return Rejection(kind, "affine-not-normalized-axes", "scale or bias varies over other axes")
    if kind == "BatchStatistics":
        return Rejection(kind, "no-fused-operator", "the batch is normalized as well")
    outside = _deviation_epsilon(frame.dtype, form)
    if outside is not None:
        return outside
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
        deviation_epsilon=form.deviation_epsilon,
    )


def _deviation_epsilon(dtype: ir.DataType, form: Form) -> Rejection | None:
    """Whether (sigma + e) can be said exactly: by an epsilon so small that sigma + e does not see it."""
    if not form.deviation_epsilon:
        return None
    tiny = form.epsilon or tiny_epsilon(form.deviation_epsilon)
    if dtype != ir.DataType.FLOAT or tiny < float(np.finfo(np.float32).tiny):
        detail = f"epsilon {form.deviation_epsilon:g} is added to the root, in {dtype.name}"
        return Rejection(form.kind, "eps-outside-sqrt", detail)
    return None


def tiny_epsilon(deviation_epsilon: float) -> float:
    """An epsilon beside the variance whose root is 2^-26 of the one beside the deviation.

    sqrt(v + t) differs from sqrt(v) by at most sqrt(t), which is below half an ulp of the sum with e in
    float32; and where v is 0 it keeps 0/0 away.
    """
    return (deviation_epsilon * 2.0**-26) ** 2


def _family(
    shape: tuple[int | str, ...], form: Form, *, per_channel: bool
) -> tuple[Kind, tuple[int, ...] | None]:
    """Kind and normalized axes; axes of size 1 belong wherever they are convenient."""
    rank = len(shape)
    affine = coefficient_axes(form.scale) | coefficient_axes(form.bias)
    ones = frozenset(k for k, n in enumerate(shape) if n == 1)
    if _is_instance_norm(shape, form, affine, ones, per_channel=per_channel):
        return "InstanceNorm", tuple(range(2, rank))
    first = min(form.axes)
    trailing = frozenset(range(first, rank))
    is_trailing = trailing - form.axes <= ones
    if first == 0 and not is_trailing:
        return "BatchStatistics", tuple(sorted(form.axes))
    without_epsilon = form.kind == "RMSNorm" and not (form.epsilon or form.deviation_epsilon)
    kind: Kind = "L2Norm" if without_epsilon else form.kind
    if not affine <= form.axes:
        return kind, None
    return kind, tuple(sorted(trailing if is_trailing else form.axes))


def _is_instance_norm(
    shape: tuple[int | str, ...],
    form: Form,
    affine: frozenset[int],
    ones: frozenset[int],
    *,
    per_channel: bool,
) -> bool:
    """An InstanceNorm where it is one in 4-D or more, and in 3-D where it is stated as one.

    It is the faster operator, and the only one that needs no size of the normalized axes.
    """
    spatial = frozenset(range(2, len(shape)))
    if form.kind != "LayerNorm" or form.deviation_epsilon or not spatial or not isinstance(shape[1], int):
        return False
    if form.axes != spatial - ones or not affine <= {1}:
        return False
    dynamic = not all(isinstance(shape[k], int) for k in spatial)
    return dynamic or (per_channel and (bool(affine) or len(shape) > 3))


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


def _precision(found: Walk, traced: Traced, form: Form, nodes: tuple[ir.Node, ...]) -> Rejection | None:
    dtype = found.frame.dtype
    if traced.dtype != dtype:
        return Rejection(form.kind, "precision", f"the result is {traced.dtype.name}, the input {dtype.name}")
    if dtype == ir.DataType.FLOAT and any(
        found.traced[n.outputs[0]].dtype == ir.DataType.DOUBLE for n in nodes
    ):
        return Rejection(form.kind, "precision", "it is computed in float64")
    with np.errstate(over="ignore"):
        stored = float(np.float32(form.epsilon))
    if not np.isfinite(stored) or (form.epsilon and not stored > 0):
        detail = f"epsilon {form.epsilon:g} is {stored:g} in float32"
        return Rejection(form.kind, "epsilon-not-representable", detail)
    if dtype == ir.DataType.DOUBLE and stored != form.epsilon:
        return Rejection(form.kind, "epsilon-not-representable", f"epsilon {form.epsilon!r} is no float32")
    if not (_is_held(form.scale, dtype) and _is_held(form.bias, dtype)):
        return Rejection(form.kind, "precision", f"scale or bias would overflow {dtype.name}")
    if dtype in _HALF and not (_fits(form.scale, dtype) and _fits(form.bias, dtype)):
        return Rejection(form.kind, "precision", f"scale or bias would be rounded to {dtype.name}")
    return None


def _is_held(coefficient: Coefficient, dtype: ir.DataType) -> bool:
    """Whether a parameter stays finite in a type."""
    with np.errstate(over="ignore"):
        stored = np.asarray(coefficient, dtype=np.float64).astype(dtype.numpy()).astype(np.float64)
    return bool(np.all(np.isfinite(stored)))


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
