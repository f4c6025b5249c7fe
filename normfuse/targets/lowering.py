"""From a Norm to nodes: the ordered ways to say each kind, and the conditions of each.

LayerNorm, trailing axes   LayerNormalization
LayerNorm, other axes      Transpose, LayerNormalization, Transpose
RMSNorm                    RMSNormalization, or onnxruntime's SimplifiedLayerNormalization
InstanceNorm               InstanceNormalization
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.norms.norm import Norm
from normfuse.norms.refusal import Refusal
from normfuse.targets.building import Builder
from normfuse.targets.kernels import has_kernel
from normfuse.targets.target import LAYER_NORM_OPSET, RMS_NORM_OPSET, Lowered, Target


def needed_opset(norm: Norm) -> int:
    """The opset from which the ONNX specification has an operator for this kind."""
    return {"LayerNorm": LAYER_NORM_OPSET, "RMSNorm": RMS_NORM_OPSET, "InstanceNorm": 6}[norm.kind]


def lower(facts: Facts, norm: Norm, x: ir.Value, target: Target) -> Lowered | Refusal:
    """Nodes that compute `norm` from `x` on a target, not yet in the graph; or why there are none.

    x: the value that stands for `norm.input` now.
    """
    operator = _operator(facts.opset, norm, target)
    anchor = norm.output.producer()
    assert anchor is not None
    if operator is None:
        return Refusal(norm.kind, "opset-too-low", anchor,
                       f"needs opset {needed_opset(norm)}, the model is at {facts.opset}")  # fmt: skip
    if not has_kernel(operator, target.runtimes, norm.dtype):
        return Refusal(
            norm.kind, "no-kernel", anchor, f"{target.name} has no {operator} for {norm.dtype.name}"
        )
    builder = Builder(facts, norm, x)
    output = _instance(builder) if norm.kind == "InstanceNorm" else _trailing(builder, operator)
    return Lowered(tuple(builder.nodes), output, operator)


def _operator(opset: int, norm: Norm, target: Target) -> str | None:
    """The operator for a kind, where the model's opset and the target have one."""
    if norm.kind == "InstanceNorm":
        return "InstanceNormalization"
    if norm.kind == "LayerNorm":  # onnxruntime has it at every opset
        return "LayerNormalization" if opset >= LAYER_NORM_OPSET or not target.standard else None
    if opset >= RMS_NORM_OPSET and has_kernel("RMSNormalization", target.runtimes, norm.dtype):
        return "RMSNormalization"
    return None if target.standard else "SimplifiedLayerNormalization"


def _trailing(builder: Builder, operator: str) -> ir.Value:
    """The operator over the last axes, between two Transposes where the normalized ones are not the last."""
    norm = builder.norm
    rank = len(norm.shape)
    x = builder.x
    order = tuple(k for k in range(rank) if k not in norm.axes) + norm.axes
    if not norm.is_trailing:
        x = builder.emit("Transpose", x, perm=order)
    sizes = builder.static(norm.axes)
    operands = [x, builder.parameter(norm.scale, norm.axes, sizes, "scale")]
    biased = isinstance(norm.bias, np.ndarray) or norm.bias != 0
    takes_bias = operator == "LayerNormalization"
    if biased and takes_bias:
        operands.append(builder.parameter(norm.bias, norm.axes, sizes, "bias"))
    y = builder.emit(operator, *operands, axis=-len(norm.axes), epsilon=float(norm.epsilon))
    if biased and not takes_bias:
        y = builder.emit("Add", y, builder.parameter(norm.bias, norm.axes, sizes, "bias"))
    if not norm.is_trailing:
        y = builder.emit("Transpose", y, perm=tuple(int(k) for k in np.argsort(order)))
    return y


def _instance(builder: Builder) -> ir.Value:
    norm = builder.norm
    sizes = builder.static((1,))
    scale = builder.parameter(norm.scale, (1,), sizes, "scale")
    bias = builder.parameter(norm.bias, (1,), sizes, "bias")
    return builder.emit("InstanceNormalization", builder.x, scale, bias, epsilon=float(norm.epsilon))
