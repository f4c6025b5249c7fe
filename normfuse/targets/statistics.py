"""Norms over inner axes by statistics that are matrix products, without any Transpose.

    x [N, C, H, W], over C      X = Reshape(x, [N, C, H*W])
                                d = X - MatMul(1/C, X)
                                y = d / sqrt(MatMul(1/C, d*d) + epsilon)        1/C: a row of C numbers
                                Reshape(BatchNormalization(y, scale, bias))

For onnxruntime's CPU provider: its Transposes cost more than the norm between them, its ReduceMean over an
inner axis up to five times a product with a row of ones, and the affine along that axis is one
BatchNormalization. The statistics are the same sums, and the mean is taken off before the square. RMSNorm
and L2Norm lack the subtraction. A scale that is one number goes into the divisor.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from normfuse.norms.norm import Norm
from normfuse.targets.building import Builder
from normfuse.targets.lowering import Lowering

MOST_EXACT = 384
"""Up to how many elements the sums are as exact as those of LayerNormalization, on equal numbers too."""
LEAST_BEHIND = 128
"""How many elements have to lie behind the normalized axes for this to be faster than two Transposes."""


def _build(builder: Builder) -> ir.Value:
    norm = builder.norm
    x = _view(builder)
    uniform = _uniform_scale(norm)
    if norm.kind == "LayerNorm":
        x = builder.emit("Sub", x, _mean(builder, x))
    spread = _mean(builder, builder.emit("Mul", x, x), 1.0 / uniform**2)
    if norm.epsilon:
        spread = builder.emit("Add", spread, _constant(builder, norm.epsilon / uniform**2, "epsilon"))
    divisor = builder.emit("Sqrt", spread)
    if norm.deviation_epsilon:
        epsilon = _constant(builder, norm.deviation_epsilon / uniform, "epsilon")
        divisor = builder.emit("Add", divisor, epsilon)
    y = builder.emit("Div", x, divisor)
    if uniform == 1.0 and not norm.is_bare:
        y = _affine(builder, y)
    return y if len(norm.shape) == 3 else builder.shaped_like_x(y)


def _mean(builder: Builder, x: ir.Value, factor: float = 1.0) -> ir.Value:
    """factor times the mean over the normalized axes."""
    length = builder.norm.known_length
    return builder.emit("MatMul", _constant(builder, np.full((1, length), factor / length), "mean"), x)


def _view(builder: Builder) -> ir.Value:
    """x as [first, normalized, all behind]."""
    norm = builder.norm
    if len(norm.shape) == 3:
        return builder.x
    behind = _behind(norm)
    dims = [0, norm.known_length, -1 if behind is None else behind]
    return builder.emit("Reshape", builder.x, builder.number(np.array(dims, np.int64), "view"))


def _affine(builder: Builder, y: ir.Value) -> ir.Value:
    norm = builder.norm
    sizes = builder.static(norm.axes)
    scale = builder.parameter(norm.scale, norm.axes, sizes, "scale", flat=True)
    bias = builder.parameter(norm.bias, norm.axes, sizes, "bias", flat=True)
    return builder.scaled(y, scale, bias, (math.prod(sizes),))


def _constant(builder: Builder, number: object, wish: str) -> ir.Value:
    return builder.number(np.asarray(number, builder.norm.dtype.numpy()), wish)


def _uniform_scale(norm: Norm) -> float:
    """A scale above 0 that is one number, where there is no bias: it can be divided by."""
    if isinstance(norm.scale, np.ndarray) or norm.is_biased:
        return 1.0
    return float(norm.scale) if 2.0**-20 < norm.scale < 2.0**20 else 1.0


def _behind(norm: Norm) -> int | None:
    """How many elements lie behind the normalized axes, where that is known."""
    dims = norm.shape[norm.axes[-1] + 1 :]
    return math.prod(n for n in dims if isinstance(n, int)) if all(isinstance(n, int) for n in dims) else None


def is_inner(norm: Norm) -> bool:
    """Whether the axes from the second on are normalized, but not the last: as in channels-first images."""
    inner = norm.axes == tuple(range(1, len(norm.axes) + 1)) and not norm.is_trailing
    return inner and norm.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def is_as_exact_as_the_operator(norm: Norm) -> bool:
    """Whether nothing is lost against a LayerNormalization; against ReduceMean nothing is at any length."""
    return norm.known_length <= MOST_EXACT


def gains(norm: Norm) -> bool:
    """Whether it is faster than a norm between two Transposes."""
    behind = _behind(norm)
    return behind is None or behind >= LEAST_BEHIND


def is_beside_convolution(norm: Norm) -> bool:
    """Whether an image comes from a convolution or goes into one.

    onnxruntime keeps such images in blocks of channels and has to reorder them for every other operator: a
    Transpose there becomes part of the reordering, and costs next to nothing.
    """
    producer = norm.input.producer()
    neighbours = [*norm.output.consumers(), *([] if producer is None else [producer])]
    return len(norm.shape) == 4 and any(node.op_type in ("Conv", "FusedConv") for node in neighbours)


MATMUL_STATISTICS = Lowering(
    "matmul-statistics",
    "MatMul",
    ("LayerNorm", "RMSNorm", "L2Norm"),
    _build,
    is_inner,
    ("BatchNormalization",),
)
