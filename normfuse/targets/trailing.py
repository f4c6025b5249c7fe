"""Norms over the last axes, and over others between two Transposes.

LayerNorm   LayerNormalization(x, scale, bias)
RMSNorm     RMSNormalization(x, scale), or onnxruntime's SimplifiedLayerNormalization; Add(bias)
L2Norm      the same with epsilon 0: NaN on a zero row, as x / ||x|| is

other axes  Transpose -> one of these -> Transpose
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from normfuse.norms.norm import Norm
from normfuse.targets.building import Builder
from normfuse.targets.kernels import has_kernel
from normfuse.targets.target import LAYER_NORM_OPSET, RMS_NORM_OPSET, Target


def operator(opset: int, norm: Norm, target: Target) -> str | None:
    """The operator for a kind, where the model's opset and the target have one."""
    if norm.kind == "LayerNorm":  # onnxruntime has it at every opset
        return "LayerNormalization" if opset >= LAYER_NORM_OPSET or not target.standard else None
    own = not target.standard
    modern = opset >= RMS_NORM_OPSET and has_kernel("RMSNormalization", target.runtimes, norm.dtype)
    if modern and not (norm.deviation_epsilon and own):
        return "RMSNormalization"
    if own:
        return "SimplifiedLayerNormalization"
    return "RMSNormalization" if opset >= RMS_NORM_OPSET else None


def build(builder: Builder, operator: str) -> ir.Value:
    """The operator with its scale and bias."""
    norm = builder.norm
    x = builder.trailing()
    sizes = builder.static(norm.axes)
    operands = [x, builder.parameter(norm.scale, norm.axes, sizes, "scale")]
    takes_bias = operator == "LayerNormalization"
    if is_biased(norm) and takes_bias:
        operands.append(builder.parameter(norm.bias, norm.axes, sizes, "bias"))
    y = builder.emit(operator, *operands, axis=-len(norm.axes), epsilon=float(norm.epsilon))
    return builder.restored(y if takes_bias else biased(builder, y))


def is_biased(norm: Norm) -> bool:
    """Whether there is a bias to add."""
    return isinstance(norm.bias, np.ndarray) or norm.bias != 0


def biased(builder: Builder, y: ir.Value) -> ir.Value:
    """Add the bias, where there is one, in the frame of the normalized axes."""
    norm = builder.norm
    if not is_biased(norm):
        return y
    return builder.emit("Add", y, builder.parameter(norm.bias, norm.axes, builder.static(norm.axes), "bias"))
