"""Norms whose epsilon stands beside the deviation: d / (sigma + e).

    y, _, r = LayerNormalization(x, scale, epsilon=t)        r = 1 / sqrt(var + t) is its InvStdDev
    y / (1 + e*r) + bias                                     e*r is a number a row

d / (sigma + e) = (d / sigma) / (1 + e / sigma). t is so small that sigma + e does not see it (see
norms.precision.tiny_epsilon), and keeps constant rows at 0, as the original does. For RMSNorm the second
output of onnxruntime's SimplifiedLayerNormalization is the same r; RMSNormalization has none.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from normfuse.norms.norm import Norm
from normfuse.norms.precision import tiny_epsilon
from normfuse.targets.building import Builder
from normfuse.targets.lowering import Lowering
from normfuse.targets.trailing import biased


def _build(builder: Builder, operator: str) -> ir.Value:
    """The operator, the correction of each row, and the bias."""
    norm = builder.norm
    epsilon = norm.epsilon or tiny_epsilon(norm.deviation_epsilon)
    x = builder.trailing()
    scale = builder.parameter(norm.scale, norm.axes, builder.static(norm.axes), "scale")
    attributes = {"axis": -len(norm.axes), "epsilon": float(epsilon)}
    y, inverse = builder.emit_with_inverse(operator, x, scale, **attributes)
    dtype = norm.dtype.numpy()
    shrink = builder.emit("Mul", inverse, builder.number(np.array(norm.deviation_epsilon, dtype), "epsilon"))
    divisor = builder.emit("Add", shrink, builder.number(np.array(1.0, dtype), "one"))
    return builder.restored(biased(builder, builder.emit("Div", y, divisor)))


def has_deviation_epsilon(norm: Norm) -> bool:
    """Whether the epsilon stands beside the deviation."""
    return bool(norm.deviation_epsilon)


LAYER_NORM_DEVIATION = Lowering(
    "layer-norm-deviation",
    "LayerNormalization",
    ("LayerNorm",),
    lambda builder: _build(builder, "LayerNormalization"),
    has_deviation_epsilon,
)
SIMPLIFIED_DEVIATION = Lowering(
    "simplified-layer-norm-deviation",
    "SimplifiedLayerNormalization",
    ("RMSNorm", "L2Norm"),
    lambda builder: _build(builder, "SimplifiedLayerNormalization"),
    has_deviation_epsilon,
)
