"""Group normalization: a norm on a view of the channels in groups, and the affine behind it.

Wu and He, 2018. ONNX GroupNormalization-21.

    before   x[N, C, H, W] -> Reshape [N, G, L] -> norm over L -> Reshape [N, C, H, W] -> Mul [C,1,1] -> Add
    is       GroupNorm(x, groups=G, scale[C], bias[C])

Exporters write the view as [N, G, L], [N, G, C/G, H, W], [N*G, L] or [1, N*C, H, W] (that is one channel a
group: an InstanceNorm), and the affine before or behind the view back. The core may be spelled out or fused
already (torch writes InstanceNormalization with scale 1). The affine has to be along the channels of x,
counted from its rank; one along another axis stays outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from normfuse.algebra.frame import Frame, Traced
from normfuse.algebra.operators import OPERATORS, Context
from normfuse.algebra.polynomial import ONE, Coefficient, coefficient_axes, simplified
from normfuse.graph.facts import Facts
from normfuse.graph.shapes import Dim
from normfuse.norms.norm import Norm

_AFFINE = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Identity", "BatchNormalization"})
_MAX_TAIL = 6


@dataclass(frozen=True)
class _Affine:
    """scale * v + bias for the value `end` behind v, and the nodes in between."""

    end: ir.Value
    scale: Coefficient
    bias: Coefficient
    nodes: tuple[ir.Node, ...]


def grouped(facts: Facts, norm: Norm) -> Norm | None:
    """The GroupNorm (or InstanceNorm) of which `norm` is the core on a view, or None."""
    view = norm.input.producer()
    if norm.kind not in ("LayerNorm", "InstanceNorm") or norm.deviation_epsilon or not norm.is_trailing:
        return None
    if view is None or view.op_type != "Reshape" or view.inputs[0] is None:
        return None
    x = view.inputs[0]
    shape = facts.shapes.of(x)
    if shape is None or len(shape) < 3 or not isinstance(shape[1], int):
        return None
    groups = _groups(norm.shape[: norm.axes[0]], shape[0], shape[1])
    if groups is None:
        return None
    for inner in reversed(list(_tail(facts, norm.output))):
        found = _behind(facts, norm, view, x, shape, groups, inner)
        if found is not None:
            return found
    return None


def _groups(leading: tuple[Dim, ...], batch: Dim, channels: int) -> int | None:
    """G where the leading dimensions of a view are provably N and G, in this order, and G divides C."""
    fixed = math.prod(n for n in leading if isinstance(n, int))
    symbols = [n for n in leading if not isinstance(n, int)]
    if isinstance(batch, int):
        groups = fixed // batch if not symbols and batch and fixed % batch == 0 else 0
    elif symbols == [batch]:
        groups = fixed
    elif len(symbols) == 1:
        products = {f"{g}*{batch}": g for g in range(1, channels + 1)}
        groups = fixed * products.get(str(symbols[0]), 0)
    else:
        return None
    return groups if groups > 0 and channels % groups == 0 else None


def _tail(facts: Facts, start: ir.Value) -> Iterator[_Affine]:
    """The affines by constants behind a value, each longer by a node; the first is none at all."""
    shape, dtype = facts.shapes.of(start), facts.shapes.dtype(start)
    if shape is None or dtype is None:
        return
    frame = Frame(shape, dtype)
    traced = {start: frame.base()}
    value, nodes = start, ()  # type: ir.Value, tuple[ir.Node, ...]
    yield _Affine(start, 1.0, 0.0, ())
    for _ in range(_MAX_TAIL):
        consumers = value.consumers()
        if len(consumers) != 1 or value.is_graph_output() or consumers[0].op_type not in _AFFINE:
            return
        node = consumers[0]
        result = OPERATORS[node.op_type](Context(facts, frame, traced), node)
        if not isinstance(result, Traced) or result.shape != shape:
            return
        rest = dict(result.polynomial)
        bias = rest.pop(ONE, 0.0)
        scale = rest.pop(((frame.algebra.base, Fraction(1)),), None)
        if rest or scale is None:
            return
        value, nodes = node.outputs[0], (*nodes, node)
        traced[value] = result
        yield _Affine(value, scale, bias, nodes)


def _behind(
    facts: Facts, norm: Norm, view: ir.Node, x: ir.Value, shape: tuple[Dim, ...], groups: int, inner: _Affine
) -> Norm | None:
    """The whole, when the view back follows the affine `inner` (which is stated on the view)."""
    consumers = inner.end.consumers()
    if len(consumers) != 1 or inner.end.is_graph_output() or consumers[0].op_type != "Reshape":
        return None
    back = consumers[0]
    channels = int(shape[1])
    own = _composed((norm.scale, norm.bias), (inner.scale, inner.bias))
    scale, bias = (_per_channel(c, norm.shape, shape[0], channels, groups) for c in own)
    if scale is None or bias is None or not _is_view_back(facts.shapes.of(back.outputs[0]), shape):
        return None
    along = (1, channels, *[1] * (len(shape) - 2))
    best = _Affine(back.outputs[0], 1.0, 0.0, ())
    for outer in _tail(facts, back.outputs[0]):
        if coefficient_axes(outer.scale) | coefficient_axes(outer.bias) <= {1}:
            best = outer
    scale, bias = (c.reshape(along) if isinstance(c, np.ndarray) else c for c in (scale, bias))
    scale, bias = _composed((scale, bias), (best.scale, best.bias))
    return replace(
        norm,
        kind="InstanceNorm" if groups == channels else "GroupNorm",
        input=x,
        output=best.end,
        shape=shape,
        axes=tuple(range(2, len(shape))),
        scale=simplified(scale),
        bias=simplified(bias),
        spelled=(view, *norm.spelled, *inner.nodes, back, *best.nodes),
        groups=groups,
    )


def _is_view_back(back: tuple[Dim, ...] | None, shape: tuple[Dim, ...]) -> bool:
    """Whether a view has the shape of x: all dimensions but one the same, so that one is as well."""
    if back is None or len(back) != len(shape):
        return False
    unproven = [(n, m) for n, m in zip(back, shape, strict=True) if n != m]
    return not unproven or (len(unproven) == 1 and any(isinstance(n, str) for n in unproven[0]))


def _composed(
    first: tuple[Coefficient, Coefficient], second: tuple[Coefficient, Coefficient]
) -> tuple[Coefficient, Coefficient]:
    """The affine `second` of the affine `first`."""
    return first[0] * second[0], first[1] * second[0] + second[1]


def _per_channel(
    coefficient: Coefficient, view: tuple[Dim, ...], batch: Dim, channels: int, groups: int
) -> Coefficient | None:
    """A coefficient on the view as one along the channels of x; None where it varies within a channel."""
    if not isinstance(coefficient, np.ndarray):
        return coefficient
    if isinstance(batch, int) and groups == channels:  # [1, N*C, …]: the same for every image, or none
        blocks = coefficient.reshape(-1)
        if blocks.size == batch * channels and (blocks.reshape(batch, -1) == blocks[:channels]).all():
            return blocks[:channels]
    first = next(
        (k for k, n in enumerate(view) if n == groups and [*view[:k]] in ([batch], [1, batch])), None
    )
    if first is None:
        return None
    sizes, k = [groups], first + 1
    while math.prod(sizes) < channels and k < len(view) and isinstance(n := view[k], int):
        if channels % (math.prod(sizes) * n):
            break
        sizes.append(n)
        k += 1
    if not coefficient_axes(coefficient) <= frozenset(range(first, k)):
        return None
    block = coefficient.reshape(coefficient.shape[first:k])
    values = np.broadcast_to(block, sizes).reshape(-1)
    return np.repeat(values, channels // values.size)


def from_operator(facts: Facts, node: ir.Node) -> Norm | None:
    """The GroupNorm that a GroupNormalization node computes, or None where its affine is not constant.

    Its scale and bias are one a channel from opset 21 on, and one a group before.
    """
    x, output = node.inputs[0], node.outputs[0]
    shape, dtype = facts.shapes.of(x), facts.shapes.dtype(x)
    groups = node.attributes.get_int("num_groups", 0)
    if x is None or shape is None or dtype is None or len(shape) < 3 or not isinstance(shape[1], int):
        return None
    arrays = [facts.constants.get(v) for v in node.inputs[1:3]]
    parameters = [np.asarray(a, dtype=np.float64) for a in arrays if a is not None and a.ndim == 1]
    if groups < 1 or shape[1] % groups or len(parameters) != 2 or any(shape[1] % p.size for p in parameters):
        return None
    along = (1, shape[1], *[1] * (len(shape) - 2))
    scale, bias = (simplified(np.repeat(p, shape[1] // p.size).reshape(along)) for p in parameters)
    epsilon = float(np.float32(node.attributes.get_float("epsilon", 1e-5)))
    axes = tuple(range(2, len(shape)))
    return Norm("GroupNorm", x, output, shape, axes, epsilon, scale, bias, dtype, (node,), groups=groups)
