"""Local response normalization as ONNX's LRN operator, which every target has, in float32."""

from __future__ import annotations

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.norms.local_response import LocalResponse
from normfuse.norms.refusal import Refusal
from normfuse.targets.kernels import has_kernel
from normfuse.targets.target import Lowered, Target


def lower_response(facts: Facts, site: LocalResponse, target: Target) -> Lowered | Refusal:
    """The LRN node of a site, not yet in the graph; or why there is none."""
    anchor = site.output.producer()
    assert anchor is not None
    if not has_kernel("LRN", target.runtimes, site.dtype):
        return Refusal("LocalResponseNorm", "no-kernel", anchor, f"no LRN for {site.dtype.name}")
    wish = f"{site.output.name}/LRN"
    attributes = {"size": site.size, "alpha": site.alpha, "beta": site.beta, "bias": site.bias}
    node = ir.node("LRN", [site.input], attributes, name=facts.names.node(wish))
    node.outputs[0].name = facts.names.value(wish)
    node.outputs[0].type = ir.TensorType(site.dtype)
    return Lowered((node,), node.outputs[0], "LRN")
