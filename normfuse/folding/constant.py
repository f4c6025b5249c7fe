"""A BatchNormalization of a constant is a constant, in training mode as well.

    before   W -> Reshape(1, out, -1) -> BatchNormalization(training) -> Reshape -> Conv
    after    W' -> Reshape -> Conv

Weight standardization is exported so: its batch is the weights, and they are always the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from normfuse.folding.affine import Array
from normfuse.folding.elementwise import epsilon_of, is_training
from normfuse.graph import surgery
from normfuse.graph.facts import Facts


def fold_constants(facts: Facts, nodes: Sequence[ir.Node]) -> int:
    """Replace every BatchNormalization of a constant by what it computes; returns how many there were."""
    count = 0
    for node in nodes:
        if node.op_type != "BatchNormalization" or any(_is_used(out) for out in node.outputs[1:]):
            continue
        output = node.outputs[0]
        if output.is_graph_output() or facts.opset < 9 or not facts.constants.is_known(node.inputs[0]):
            continue
        arrays = [facts.constants.get(operand) for operand in node.inputs[:5]]
        known = [array for array in arrays if array is not None]
        if len(known) < 5 or known[0].ndim < 2:
            continue
        result = _normalized(known, epsilon_of(node), is_training(facts, node))
        if np.isfinite(result.astype(np.float64)).all():
            surgery.reroute(facts, output, surgery.add_constant(facts, result, f"{output.name}/constant"))
            count += 1
    return count


def _normalized(arrays: Sequence[Array], epsilon: float, training: bool) -> Array:
    data, gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays)
    if training:
        others = (0, *range(2, data.ndim))
        mean, variance = data.mean(others), data.var(others)
    shape = (-1,) + (1,) * (data.ndim - 2)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + epsilon)
        exact = (data - mean.reshape(shape)) * scale.reshape(shape) + beta.reshape(shape)
        return exact.astype(arrays[0].dtype)


def _is_used(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
