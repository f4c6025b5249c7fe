"""From a Norm to nodes: which way of saying it a target has.

LayerNorm, RMSNorm, L2Norm   trailing.py    LayerNormalization, RMSNormalization, SimplifiedLayer…
the same with sigma + e      deviation.py   through the operator's second output
InstanceNorm, GroupNorm      channels.py    InstanceNormalization, GroupNormalization
"""

from __future__ import annotations

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.norms.norm import Norm
from normfuse.norms.refusal import Refusal
from normfuse.targets import channels, deviation, trailing
from normfuse.targets.building import Builder
from normfuse.targets.kernels import has_kernel
from normfuse.targets.target import GROUP_NORM_OPSET, LAYER_NORM_OPSET, RMS_NORM_OPSET, Lowered, Target

_OPSETS = {"LayerNorm": LAYER_NORM_OPSET, "GroupNorm": GROUP_NORM_OPSET, "InstanceNorm": 6}


def needed_opset(norm: Norm) -> int:
    """The opset from which the ONNX specification has an operator for this kind."""
    return _OPSETS.get(norm.kind, RMS_NORM_OPSET)


def wants_opset(norm: Norm, target: Target) -> bool:
    """Whether a target would rather raise the opset than say a kind in onnxruntime's own operators."""
    return target.standard or norm.kind == "LayerNorm"


def lower(facts: Facts, norm: Norm, x: ir.Value, target: Target) -> Lowered | Refusal:
    """Nodes that compute `norm` from `x` on a target, not yet in the graph; or why there are none.

    x: the value that stands for `norm.input` now.
    """
    anchor = norm.output.producer()
    assert anchor is not None
    per_channel = norm.kind in ("InstanceNorm", "GroupNorm")
    operator = (channels if per_channel else trailing).operator(facts.opset, norm, target)
    if operator is None:
        detail = f"needs opset {needed_opset(norm)}, the model is at {facts.opset}"
        return Refusal(norm.kind, "opset-too-low", anchor, detail)
    if not has_kernel(operator, target.runtimes, norm.dtype):
        detail = f"{target.name} has no {operator} for {norm.dtype.name}"
        return Refusal(norm.kind, "no-kernel", anchor, detail)
    if norm.deviation_epsilon and operator == "RMSNormalization":
        return Refusal(norm.kind, "eps-outside-sqrt", anchor, "RMSNormalization does not give the deviation")
    builder = Builder(facts, norm, x)
    if per_channel:
        output = channels.build(builder, operator, target)
    elif norm.deviation_epsilon:
        output = deviation.build(builder, operator)
    else:
        output = trailing.build(builder, operator)
    return Lowered(tuple(builder.nodes), output, operator)
