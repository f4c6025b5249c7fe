"""Multiplications that belong to an activation, which the runtime fuses as a whole.

    x * (1 + erf(x / sqrt(2))) * 0.5 -> MatMul

onnxruntime makes one Gelu of this. With the 0.5 folded into the MatMul it no longer knows it, and the
network is slower by more than the multiplication that went.
"""

from __future__ import annotations

import onnx_ir as ir

_CURVES = frozenset({"Erf", "Tanh"})
_PARTS = frozenset({"Add", "Mul", "Identity", "Cast"})
_DEPTH = 4


def ends_activation(node: ir.Node) -> bool:
    """Whether a Mul or Div is the last of a GELU in pieces."""
    if node.op_type not in ("Mul", "Div"):
        return False
    level = [v.producer() for v in node.inputs if v is not None]
    for _ in range(_DEPTH):
        nodes = [n for n in level if n is not None]
        if any(n.op_type in _CURVES for n in nodes):
            return True
        level = [v.producer() for n in nodes if n.op_type in _PARTS for v in n.inputs if v is not None]
    return False
