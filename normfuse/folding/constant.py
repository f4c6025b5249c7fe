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
from normfuse.folding.chains import Excluded
from normfuse.folding.elementwise import epsilon_of, is_training
from normfuse.folding.ledger import Ledger
from normfuse.folding.plan import FoldRecord
from normfuse.graph import surgery
from normfuse.graph.facts import Facts


def fold_constants(facts: Facts, excluded: Excluded, ledger: Ledger) -> None:
    """Replace every BatchNormalization of a constant by what it computes."""
    for node in list(facts.model.graph.all_nodes()):
        if node.op_type != "BatchNormalization" or node.domain != "":
            continue
        output = node.outputs[0]
        if output.is_graph_output() or facts.opset < 9 or not facts.constants.is_known(node.inputs[0]):
            continue
        arrays = [array for v in node.inputs[:5] if (array := facts.constants.get(v)) is not None]
        if len(arrays) < 5 or arrays[0].ndim < 2 or any(_is_used(out) for out in node.outputs[1:]):
            continue
        result = _normalized(arrays, epsilon_of(node), is_training(facts, node))
        name, data = output.name or "", node.inputs[0]
        if not np.isfinite(result.astype(np.float64)).all() or excluded("BatchNorm", node, name):
            continue
        begins = data.name if data is not None and data.name else ""
        grown = int(result.nbytes)
        removed = surgery.become_constant(facts, output, result)
        detail = "a constant is normalized once and for all"
        ledger.enter(
            FoldRecord(
                "BatchNorm",
                node.name or name,
                begins,
                name,
                node.op_type,
                "Constant",
                removed,
                0.0,
                grown,
                detail,
            ),
            gone=(),
            changed=(),
            moves_input=False,
        )


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
