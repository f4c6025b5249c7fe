"""Norms with a scale and a bias for each channel.

    InstanceNorm   InstanceNormalization(x, scale, bias), between Transposes where the channels are last
    GroupNorm      Reshape [N, G, L] -> InstanceNormalization(1, 0) -> Reshape back -> affine

All of it is standard ONNX at any opset. In types without an InstanceNormalization kernel, and where tuning
finds it faster, the core is a LayerNormalization over the same elements. GroupNormalization is not emitted
for any target: onnxruntime has no kernel for it and expands its function body, which is slower than the view,
and which computes the variance so that a large offset turns it into NaN. The affine is one BatchNormalization
with mean 0 and variance 1: less than a Mul and an Add.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from normfuse.graph.shapes import Dim
from normfuse.norms.norm import Norm
from normfuse.targets.building import Builder
from normfuse.targets.kernels import has_kernel
from normfuse.targets.lowering import Lowering


def _instance_norm(builder: Builder) -> ir.Value:
    """The operator with its scale and bias."""
    if builder.norm.channel != 1:
        return _channels_last(builder)
    scale, bias = _parameters(builder)
    return builder.emit("InstanceNormalization", builder.x, scale, bias, epsilon=float(builder.norm.epsilon))


def _instance_norm_over_last(builder: Builder) -> ir.Value:
    """LayerNormalization over all axes behind the channels, and the affine of each channel."""
    return _affine(builder, _core(builder, "LayerNormalization", builder.x, builder.norm.size))


def _on_view(builder: Builder, operator: str) -> ir.Value:
    """Reshape -> operator over the groups -> Reshape -> affine."""
    norm = builder.norm
    parts = [n for n in norm.shape[1:] if isinstance(n, int)]
    static = len(parts) == len(norm.shape) - 1
    length = math.prod(parts) // norm.groups if static else -1  # 0 images cannot be divided by -1
    groups = builder.number(np.array([0, norm.groups, length], np.int64), "groups")
    core = _core(builder, operator, builder.emit("Reshape", builder.x, groups), (length,))
    return _affine(builder, builder.shaped_like_x(core))


def _channels_last(builder: Builder) -> ir.Value:
    """Transpose -> InstanceNormalization -> Transpose."""
    norm = builder.norm
    rank = len(norm.shape)
    first = builder.emit("Transpose", builder.x, perm=(0, rank - 1, *range(1, rank - 1)))
    scale, bias = _parameters(builder)
    y = builder.emit("InstanceNormalization", first, scale, bias, epsilon=float(norm.epsilon))
    return builder.emit("Transpose", y, perm=(0, *range(2, rank), 1))


def _parameters(builder: Builder) -> tuple[ir.Value, ir.Value]:
    along = (builder.norm.channel,)
    scale = builder.parameter(builder.norm.scale, along, builder.static(along), "scale")
    return scale, builder.parameter(builder.norm.bias, along, builder.static(along), "bias")


def _core(builder: Builder, operator: str, x: ir.Value, size: tuple[Dim, ...]) -> ir.Value:
    """(x - mean) / sqrt(var + epsilon) over the last dimensions, `size`, behind the first two of x."""
    norm = builder.norm
    dtype, epsilon = norm.dtype.numpy(), float(norm.epsilon)
    if operator == "LayerNormalization":
        ones = builder.number(np.ones([n for n in size if isinstance(n, int)], dtype), "one")
        return builder.emit(operator, x, ones, axis=-len(size), epsilon=epsilon)
    ones = builder.number(np.ones(norm.groups, dtype), "one")
    zeros = builder.number(np.zeros(norm.groups, dtype), "zero")
    return builder.emit(operator, x, ones, zeros, epsilon=epsilon)


def _affine(builder: Builder, y: ir.Value) -> ir.Value:
    """Scale and bias of each channel: one BatchNormalization where there is a kernel, else Mul and Add."""
    norm: Norm = builder.norm
    if norm.is_bare:
        return y
    if has_kernel("BatchNormalization", builder.runtimes, norm.dtype, builder.facts.opset):
        return builder.scaled(y, *_parameters(builder), builder.static((1,)))
    along = tuple(range(1, len(norm.shape)))
    sizes = (*builder.static((1,)), *[1] * (len(norm.shape) - 2))
    scaled = builder.emit("Mul", y, builder.parameter(norm.scale, along, sizes, "scale"))
    return builder.emit("Add", scaled, builder.parameter(norm.bias, along, sizes, "bias"))


def _has_static_channels_first(norm: Norm) -> bool:
    """Whether LayerNormalization can do it too: it needs a scale of known size."""
    return norm.channel == 1 and all(isinstance(n, int) for n in norm.shape[1:])


INSTANCE_NORM = Lowering("instance-norm", "InstanceNormalization", ("InstanceNorm",), _instance_norm)
INSTANCE_NORM_OVER_LAST = Lowering(
    "layer-norm-over-last",
    "LayerNormalization",
    ("InstanceNorm",),
    _instance_norm_over_last,
    _has_static_channels_first,
)
VIEW_INSTANCE_NORM = Lowering(
    "view-instance-norm",
    "InstanceNormalization",
    ("GroupNorm",),
    lambda builder: _on_view(builder, "InstanceNormalization"),
)
VIEW_LAYER_NORM = Lowering(
    "view-layer-norm",
    "LayerNormalization",
    ("GroupNorm",),
    lambda builder: _on_view(builder, "LayerNormalization"),
    _has_static_channels_first,
)
