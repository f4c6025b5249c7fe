"""Norm operators whose types contradict each other, found before anything else is done.

    LayerNormalization(X: float32, Scale: float16)     torch exports it from half models; no runtime loads it

Left alone, the error comes from the runtime, in the middle of verification, and looks like a fault of the
rewrite.
"""

from __future__ import annotations

import onnx_ir as ir

from normfuse.errors import InputError
from normfuse.graph.scopes import graphs

# Inputs that must share the type of the first, in the standard domain, and the opset from which on they must.
# RMSNormalization allows its scale another type, so it is not here.
_SAME_TYPE = {"LayerNormalization": 17, "GroupNormalization": 18, "InstanceNormalization": 1}


def check_types(model: ir.Model, where: str) -> None:
    """Raise `InputError` for a norm whose input and scale or bias are known to differ in type."""
    opset = model.opset_imports.get("") or model.opset_imports.get("ai.onnx") or 0
    for graph in graphs(model):
        for node in graph:
            since = _SAME_TYPE.get(node.op_type)
            if since is not None and node.domain == "" and opset >= since:
                _check(node, where)


def _check(node: ir.Node, where: str) -> None:
    x, *others = node.inputs
    if x is None or x.dtype is None:
        return
    for role, value in zip(("scale", "bias"), others, strict=False):
        if value is not None and value.dtype is not None and value.dtype is not x.dtype:
            raise InputError(
                f"{where}: node {node.name!r} ({node.op_type}) has an input of {x.dtype.name} "
                f"and a {role} of {value.dtype.name} ({value.name!r}); ONNX wants one type for both",
                hint=f"cast {value.name!r} to {x.dtype.name}, or export the model again in one type",
            )
