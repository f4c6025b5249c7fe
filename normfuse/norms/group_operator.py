"""A GroupNormalization node, read as the GroupNorm that it computes.

ONNX GroupNormalization-18 has a scale and a bias for each group, -21 for each channel.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from normfuse.algebra.coefficient import simplified
from normfuse.graph.facts import Facts
from normfuse.norms.norm import Kind, Norm


def from_operator(facts: Facts, node: ir.Node) -> Norm | None:
    """The GroupNorm that a node computes, or None: another operator, or its affine is not constant."""
    if node.op_type != "GroupNormalization" or node.domain != "":
        return None
    x, output = node.inputs[0], node.outputs[0]
    shape, dtype = facts.shapes.of(x), facts.shapes.dtype(x)
    groups = node.attributes.get_int("num_groups", 0)
    if x is None or shape is None or dtype is None or len(shape) < 3 or not isinstance(shape[1], int):
        return None
    arrays = [facts.constants.get(v) for v in node.inputs[1:3]]
    parameters = [np.asarray(a, dtype=np.float64) for a in arrays if a is not None and a.ndim == 1]
    if groups < 1 or shape[1] % groups or len(parameters) != 2 or any(shape[1] % p.size for p in parameters):
        return None
    along = (1, shape[1], *[1] * (len(shape) - 2))
    scale, bias = (simplified(np.repeat(p, shape[1] // p.size).reshape(along)) for p in parameters)
    epsilon = float(np.float32(node.attributes.get_float("epsilon", 1e-5)))
    axes = tuple(range(2, len(shape)))
    kind: Kind = "InstanceNorm" if groups == shape[1] else "GroupNorm"
    return Norm(kind, x, output, shape, axes, epsilon, scale, bias, dtype, (node,), groups=groups)
