"""A bias that is computed from constants is a constant.

    before   Cast(0) -> Expand(to 64) -> the bias of a Conv
    after    the bias of a Conv, an initializer

torch's exporter writes the missing bias of a Conv so when it is asked to optimize nothing. onnxruntime runs a
Conv in its blocked layout only where the bias is an initializer. A fold makes it one; were the other Convs
left as they are, the two layouts would take turns, and a folded model would be slower than it was.
"""

from __future__ import annotations

import onnx_ir as ir

from normfuse.folding import linear
from normfuse.graph import surgery
from normfuse.graph.facts import Facts

MAX_ELEMENTS = 1 << 16


def settle_biases(facts: Facts) -> None:
    """Make the bias of every linear operator of the main graph an initializer where constants compute it."""
    for node in list(facts.model.graph):
        bias = node.inputs[2] if linear.is_linear(node) and len(node.inputs) == 3 else None
        if bias is not None and _is_computed(facts, bias):
            array = facts.constants.get(bias)
            if array is not None and array.size <= MAX_ELEMENTS:
                surgery.become_constant(facts, bias, array)


def _is_computed(facts: Facts, value: ir.Value) -> bool:
    """Whether nodes of the main graph compute a constant."""
    producer = value.producer()
    if producer is None or producer.graph is not facts.model.graph or value.is_graph_output():
        return False
    if producer.op_type == "Constant":
        return False
    return facts.constants.is_known(value)
