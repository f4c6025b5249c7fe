"""From a Norm to nodes: which way of saying it a target has.

LayerNorm, RMSNorm, L2Norm   trailing.py    LayerNormalization, RMSNormalization, SimplifiedLayer…
the same with sigma + e      deviation.py   through the operator's second output
InstanceNorm, GroupNorm      channels.py    InstanceNormalization, on a view where there are groups
"""

from __future__ import annotations

import math

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.norms.norm import Norm
from normfuse.norms.refusal import Refusal
from normfuse.targets import channels, deviation, trailing
from normfuse.targets.building import Builder
from normfuse.targets.kernels import has_kernel
from normfuse.targets.target import LAYER_NORM_OPSET, RMS_NORM_OPSET, Lowered, Target

_OPSETS = {"LayerNorm": LAYER_NORM_OPSET, "GroupNorm": 6, "InstanceNorm": 6}


def needed_opset(norm: Norm) -> int:
    """The opset from which the ONNX specification has an operator for this kind."""
    return _OPSETS.get(norm.kind, RMS_NORM_OPSET)


def wants_opset(norm: Norm, target: Target) -> bool:
    """Whether a target would rather raise the opset than say a site in onnxruntime's own operators."""
    if not target.standard:
        return norm.kind == "LayerNorm"
    return not isinstance(_operator(needed_opset(norm), norm, target), Refusal)


def _operator(opset: int, norm: Norm, target: Target) -> str | Refusal:
    """The operator that says a site at an opset, or why there is none."""
    anchor = norm.output.producer()
    assert anchor is not None
    per_channel = norm.kind in ("InstanceNorm", "GroupNorm")
    family = channels if per_channel else trailing
    operator: str | None = family.operator(opset, norm, target)
    if norm.deviation_epsilon and norm.kind != "LayerNorm" and target.standard:
        return Refusal(norm.kind, "eps-outside-sqrt", anchor, "RMSNormalization does not give the deviation")
    if operator is None:
        detail = f"needs opset {needed_opset(norm)}, the model is at {opset}"
        return Refusal(norm.kind, "opset-too-low", anchor, detail)
    if not has_kernel(operator, target.runtimes, norm.dtype):
        detail = f"{target.name} has no {operator} for {norm.dtype.name}"
        return Refusal(norm.kind, "no-kernel", anchor, detail)
    if (norm.deviation_epsilon and not target.says_deviations) or _is_short(norm, target):
        return Refusal(
            norm.kind, "no-gain", anchor, f"{target.name} has nothing faster; --target ort fuses it"
        )
    return operator


def _is_short(norm: Norm, target: Target) -> bool:
    """Whether an L2 norm is two operators already, over rows too short for a fused one to gain."""
    length = math.prod(n for n in norm.size if isinstance(n, int))
    return norm.kind == "L2Norm" and len(norm.spelled) <= 2 and length < target.least_l2


def lower(facts: Facts, norm: Norm, x: ir.Value, target: Target) -> Lowered | Refusal:
    """Nodes that compute `norm` from `x` on a target, not yet in the graph; or why there are none.

    x: the value that stands for `norm.input` now.
    """
    operator = _operator(facts.opset, norm, target)
    if isinstance(operator, Refusal):
        return operator
    builder = Builder(facts, norm, x)
    if norm.kind in ("InstanceNorm", "GroupNorm"):
        output = channels.build(builder, operator, target)
    elif norm.deviation_epsilon:
        output = deviation.build(builder, operator)
    else:
        output = trailing.build(builder, operator)
    return Lowered(tuple(builder.nodes), output, operator)
