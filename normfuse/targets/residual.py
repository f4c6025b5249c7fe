"""Keep residual adds away from onnxruntime's SkipLayerNormFusion, which makes them slower on CPU.

    before   Add(x, r) -> LayerNormalization        ORT_ENABLE_ALL turns both into SkipLayerNormalization,
                                                    1.5 to 9 times slower on the CPU provider
    after    Sum(x, r) -> LayerNormalization        the same numbers; ORT does not match Sum

Only for float32 and float64, the types for which the CPU provider has a Sum kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.options import Leave

SUM = "sum"
"""The name of this way in plans."""
_SUM_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
NORMS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"})
"""Operators that the runtime would fuse with a residual add before them."""


@dataclass(frozen=True)
class Guarded:
    """One residual add that became a Sum: the node's name, what it adds and makes, and the norm behind it."""

    anchor: str
    inputs: tuple[str, ...]
    output: str
    norm: str


def guard_residuals(facts: Facts, graph: ir.Graph, leave: Leave) -> list[Guarded]:
    """Write Sum for every Add of two run-time tensors that a norm of the graph reads.

    leave: (kind, anchor, output name) -> a reason to leave one as it is, or None.
    """
    guarded = []
    for node in list(graph):
        if node.op_type not in NORMS or node.domain != "" or not node.inputs or node.inputs[0] is None:
            continue
        add = node.inputs[0].producer()
        if add is None or not _is_residual(facts, add):
            continue
        output = add.outputs[0].name or ""
        if leave("Residual", add.name or output, output) is None:
            add.op_type = "Sum"
            inputs = tuple(dict.fromkeys(v.name or "" for v in add.inputs if v is not None))
            guarded.append(Guarded(add.name or output, inputs, output, node.name or ""))
    return guarded


def _is_residual(facts: Facts, add: ir.Node) -> bool:
    if add.op_type != "Add" or add.domain != "" or facts.opset < 8:
        return False
    if facts.shapes.dtype(add.outputs[0]) not in _SUM_TYPES:
        return False
    return not any(v is None or facts.constants.is_known(v) for v in add.inputs)
