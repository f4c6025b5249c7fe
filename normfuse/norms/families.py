"""Which family a recognised form belongs to, and what has to be proved before it may be rewritten.

    LayerNorm, RMSNorm   scale and bias vary over normalized dimensions only
    L2Norm               an RMSNorm without any epsilon
    InstanceNorm         all dimensions behind the second; scale and bias vary over the second only
                         (channels last: all between the first and the last, which is that of the channels)
    GroupNorm            the same with part of the second (Wu and He, 2018)
    BatchStatistics      the first dimension is normalized as well: there is no fused operator

To be proved: the output has the shape of x; the sizes are known along which a scale must be written; nothing
is rounded more often than the model rounds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from normfuse.algebra.frame import View
from normfuse.algebra.walk import Walk
from normfuse.graph.facts import Facts
from normfuse.norms.forms import Form
from normfuse.norms.norm import Kind, Norm
from normfuse.norms.placement import Placed, place
from normfuse.norms.precision import objection

MAX_SCALE = 1 << 26  # elements; above, writing a scale of ones would cost more than is gained


@dataclass(frozen=True)
class Rejection:
    """A normalization that must not be rewritten as it stands, and why."""

    kind: Kind
    reason: str
    detail: str = ""


def classify(facts: Facts, found: Walk, value: ir.Value, form: Form) -> Norm | Rejection:
    """The Norm that ends in `value`, or what forbids it."""
    view, tensor = _tensor(found, value)
    if view is None:
        return Rejection(form.kind, "unknown-shape", f"{value.name!r} may not have the shape of the input")
    nodes = spelled_nodes(found, value, tensor)
    objected = objection(facts, found, value, form, nodes)
    if objected is not None:
        return Rejection(form.kind, *objected)
    placed = place(found.frame, view, form)
    if placed is None:
        return Rejection(form.kind, "no-fused-operator", "part of a dimension is normalized")
    if 0 in placed.shape:
        return Rejection(form.kind, "no-fused-operator", "the tensor is empty")
    kind, axes = _family(form, placed, lambda: _is_per_channel(facts, found, view, nodes))
    rejected = _unsayable(kind, placed, axes)
    if rejected is not None:
        return rejected
    return Norm(
        kind=kind,
        input=tensor,
        output=value,
        shape=placed.shape,
        axes=axes,
        epsilon=form.epsilon,
        scale=placed.scale,
        bias=placed.bias,
        dtype=found.frame.dtype,
        spelled=nodes,
        deviation_epsilon=form.deviation_epsilon,
        groups=placed.groups or (1 if kind == "GroupNorm" else 0),
    )


def _tensor(found: Walk, value: ir.Value) -> tuple[View | None, ir.Value]:
    """The view whose shape a value has, and the tensor that is seen so."""
    layout = found.traced[value].layout
    source = found.frame.source_view
    if source is not None and found.source is not None and layout == source.layout:
        return source, found.source
    base = found.frame.base_view
    return (base if layout == base.layout else None), found.base


def _family(form: Form, placed: Placed, per_channel: Callable[[], bool]) -> tuple[Kind, tuple[int, ...]]:
    rank = len(placed.shape)
    if placed.groups:
        return ("GroupNorm" if form.kind == "LayerNorm" else form.kind), tuple(range(2, rank))
    if _is_instance_norm(form, placed, per_channel):
        return "InstanceNorm", tuple(range(2, rank))
    if _is_one_group(form, placed):
        return "GroupNorm", tuple(range(2, rank))
    if _is_channels_last(form, placed):
        return "InstanceNorm", tuple(range(1, rank - 1))
    first = min(placed.normalized)
    trailing = frozenset(range(first, rank))
    is_trailing = trailing - placed.normalized <= placed.ones
    if first == 0 and not is_trailing:
        return "BatchStatistics", tuple(sorted(placed.normalized))
    without_epsilon = form.kind == "RMSNorm" and not (form.epsilon or form.deviation_epsilon)
    kind: Kind = "L2Norm" if without_epsilon else form.kind
    return kind, tuple(sorted(trailing if is_trailing else placed.normalized))


def _is_instance_norm(form: Form, placed: Placed, per_channel: Callable[[], bool]) -> bool:
    """An InstanceNorm where it is one in 4-D or more, and in 3-D where it is stated as one.

    It is the faster operator, and the only one that needs no size of the normalized dimensions.
    """
    spatial = frozenset(range(2, len(placed.shape)))
    if form.kind != "LayerNorm" or form.deviation_epsilon or not spatial:
        return False
    if placed.normalized != spatial - placed.ones or not placed.affine <= {1}:
        return False
    if not isinstance(placed.shape[1], int):
        return False
    if not placed.is_static_behind_channels:
        return True
    return (bool(placed.affine) or len(placed.shape) > 3) and per_channel()


def _is_one_group(form: Form, placed: Placed) -> bool:
    """A GroupNorm with a single group: all but the first dimension, with a scale for each channel.

    In 3-D with known sizes it is a LayerNorm whose scale is expanded; where sizes are not known it is one
    even without any scale, as a LayerNorm would need one of all the sizes.
    """
    behind = frozenset(range(1, len(placed.shape)))
    dynamic = not all(isinstance(n, int) for n in placed.shape[1:])
    return (
        form.kind == "LayerNorm"
        and (dynamic or len(behind) > 2)
        and not form.deviation_epsilon
        and len(behind) > 1
        and placed.normalized == behind - placed.ones
        and (placed.affine == {1} or (dynamic and not placed.affine))
        and isinstance(placed.shape[1], int)
    )


def _is_channels_last(form: Form, placed: Placed) -> bool:
    """An InstanceNorm of [N, …, C], as TensorFlow has it: over all between the first and the last."""
    last = len(placed.shape) - 1
    between = frozenset(range(1, last))
    return (
        form.kind == "LayerNorm"
        and not form.deviation_epsilon
        and last > 2
        and bool(placed.normalized)
        and placed.normalized == between - placed.ones
        and placed.affine <= {last}
        and isinstance(placed.shape[last], int)
    )


def _is_per_channel(facts: Facts, found: Walk, view: View, nodes: tuple[ir.Node, ...]) -> bool:
    """Whether a 3-D tensor's affine is stated for channels ([1, C, 1]) rather than for tokens ([T, 1]).

    Both compute the same; the first is an InstanceNorm, the second a LayerNorm with a scale for each token.
    """
    rank = len(view.shape)
    if rank > 3 or any(n.op_type in ("InstanceNormalization", "BatchNormalization") for n in nodes):
        return True
    constants = (v for n in nodes for v in n.inputs if v is not None and v not in found.traced)
    shapes = [facts.shapes.of(v) for v in constants]
    return any(s is not None and len(s) == rank > 1 and s[1] != 1 for s in shapes)


def _unsayable(kind: Kind, placed: Placed, axes: tuple[int, ...]) -> Rejection | None:
    """Why no operator says a family with this affine, or these sizes."""
    if kind == "BatchStatistics":
        return Rejection(kind, "no-fused-operator", "the batch is normalized as well")
    if placed.groups and kind != "GroupNorm":
        return Rejection(kind, "no-fused-operator", "part of a dimension is normalized")
    per_channel = kind in ("InstanceNorm", "GroupNorm")
    channel = len(placed.shape) - 1 if per_channel and axes[0] == 1 else 1
    if not placed.affine <= (frozenset({channel}) if per_channel else frozenset(axes)):
        return Rejection(kind, "affine-not-normalized-axes", "scale or bias varies over other dimensions")
    sized = (channel,) if per_channel else axes  # the dimensions that scale and bias lie along
    lengths = [n for k in sized if isinstance(n := placed.shape[k], int)]
    if math.prod(lengths) > MAX_SCALE:
        return Rejection(kind, "too-complex", f"the scale would have {math.prod(lengths)} elements")
    if len(lengths) == len(sized):
        return None
    sizes = " x ".join(str(placed.shape[k]) for k in sized)
    return Rejection(kind, "unknown-normalized-size", f"the scale would have the size {sizes}")


def spelled_nodes(
    found: Walk, end: ir.Value, tensor: ir.Value, stop: frozenset[ir.Value] = frozenset()
) -> tuple[ir.Node, ...]:
    """The nodes between a tensor (the base, or that of which it is a view) and `end`, in graph order."""
    stops = stop | {tensor} | ({found.source} if tensor is found.base else set())
    needed: set[ir.Value] = set()
    queue = [end]
    while queue:
        value = queue.pop()
        if value in needed or value in stops or value not in found.traced:
            continue
        needed.add(value)
        producer = value.producer()
        queue.extend(v for v in (producer.inputs if producer else ()) if v is not None)
    return tuple(p for v in found.traced if v in needed and (p := v.producer()) is not None)
