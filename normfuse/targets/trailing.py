"""Norms over the last axes, and over others between two Transposes.

LayerNorm   LayerNormalization(x, scale, bias)
RMSNorm     RMSNormalization(x, scale), or onnxruntime's SimplifiedLayerNormalization; Add(bias)
L2Norm      the same with epsilon 0: NaN on a zero row, as x / ||x|| is

other axes  Transpose -> one of these -> Transpose
"""

from __future__ import annotations

import onnx_ir as ir

from normfuse.norms.norm import Norm
from normfuse.targets.building import Builder
from normfuse.targets.lowering import Lowering


def _build(builder: Builder, operator: str, *, takes_bias: bool = False) -> ir.Value:
    """The operator with its scale and bias."""
    norm = builder.norm
    x = builder.trailing()
    sizes = builder.static(norm.axes)
    operands = [x, builder.parameter(norm.scale, norm.axes, sizes, "scale")]
    if norm.is_biased and takes_bias:
        operands.append(builder.parameter(norm.bias, norm.axes, sizes, "bias"))
    emit = builder.emit_with_statistics if norm.statistics else builder.emit
    y = emit(operator, *operands, axis=-len(norm.axes), epsilon=float(norm.epsilon))
    return builder.restored(y if takes_bias else biased(builder, y))


def biased(builder: Builder, y: ir.Value) -> ir.Value:
    """Add the bias, where there is one, in the frame of the normalized axes."""
    norm = builder.norm
    if not norm.is_biased:
        return y
    return builder.emit("Add", y, builder.parameter(norm.bias, norm.axes, builder.static(norm.axes), "bias"))


def _has_no_deviation_epsilon(norm: Norm) -> bool:
    return not norm.deviation_epsilon


LAYER_NORM = Lowering(
    "layer-norm",
    "LayerNormalization",
    ("LayerNorm",),
    lambda builder: _build(builder, "LayerNormalization", takes_bias=True),
    _has_no_deviation_epsilon,
    gives_statistics=True,
)
RMS_NORM = Lowering(
    "rms-norm",
    "RMSNormalization",
    ("RMSNorm", "L2Norm"),
    lambda builder: _build(builder, "RMSNormalization"),
    _has_no_deviation_epsilon,
)
SIMPLIFIED = Lowering(
    "simplified-layer-norm",
    "SimplifiedLayerNormalization",
    ("RMSNorm", "L2Norm"),
    lambda builder: _build(builder, "SimplifiedLayerNormalization"),
    _has_no_deviation_epsilon,
)
