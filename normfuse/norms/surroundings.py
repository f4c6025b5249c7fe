"""What lies behind a node: does it look like the statistic of a normalization at all?

Only used to decide whether a refusal is worth telling; never to decide whether something is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from normfuse.algebra.operators import REDUCTIONS
from normfuse.algebra.operators.reductions import axes_of
from normfuse.graph.facts import Facts

_ROOTS = frozenset({"Sqrt", "Reciprocal", "ReduceL2"})
_PASSING = frozenset(
    (
        *(
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Pow",
            "Max",
            "Clip",
            "Relu",
            "Abs",
            "Neg",
            "Cast",
            "CastLike",
            "Identity",
        ),
        *("Reshape", "Unsqueeze", "Squeeze", "Expand", "QuantizeLinear", "DequantizeLinear", "ReduceMean"),
        *("ReduceSum", "ReduceSumSquare"),
    )
)
_MAX_DEPTH = 10
_MAX_WIDTH = 12


def leads_to_a_root(node: ir.Node) -> bool:
    """Whether a square root or a division by it follows within a few elementwise operators."""
    return any(_is_root(n) for n in downstream([node]))


def _is_root(node: ir.Node) -> bool:
    if node.op_type != "Pow" or node.domain != "":
        return node.op_type in _ROOTS
    exponent = node.inputs[1]
    tensor = None if exponent is None else ir.convenience.get_const_tensor(exponent)
    if tensor is None or tensor.size != 1 or tensor.dtype == ir.DataType.STRING:
        return False
    return abs(float(tensor.numpy().reshape(-1)[0])) == 0.5


def downstream(nodes: Iterable[ir.Node]) -> set[ir.Node]:
    """Nodes that follow the given ones through operators that a normalization is made of, and they."""
    found = set(nodes)
    level = list(found)
    for _ in range(_MAX_DEPTH):
        consumers = (c for n in level for out in n.outputs for c in out.consumers())
        level = list(dict.fromkeys(c for c in consumers if c not in found))[:_MAX_WIDTH]
        found.update(level)
        level = [n for n in level if n.op_type in _PASSING]
    return found


def is_over_one_element(facts: Facts, node: ir.Node) -> bool:
    """Whether a reduction is over axes that all have size 1."""
    shape = facts.shapes.of(node.inputs[0]) if node.inputs else None
    if node.op_type not in REDUCTIONS or node.op_type == "GlobalAveragePool" or not shape:
        return False
    positions = axes_of(facts, node, len(shape))
    return bool(positions) and all(shape[k] == 1 for k in positions or ())
