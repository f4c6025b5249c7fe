"""Two Transposes, or two Reshapes, that undo each other once the affine between them is gone.

    before   Conv -> Transpose(to NHWC) -> BatchNorm, spelled out -> Relu -> Transpose(to NCHW)
    after    Conv -> Relu

    before   MatMul -> Flatten -> BatchNorm -> Reshape(to the shape before)
    after    MatMul -> Add

Only what works on each element alone may stand between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import onnx_ir as ir

from normfuse.folding.elementwise import Step
from normfuse.folding.layout import permutation_of
from normfuse.folding.plan import sole_reader
from normfuse.graph.facts import Facts

UNARY = frozenset({
    "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Softplus",
    "Softsign", "Gelu", "Mish", "Erf", "Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal", "ThresholdedRelu",
    "Identity", "Cast", "Swish", "Floor", "Ceil", "Round", "Sign",
})  # fmt: skip
VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_TURNS = VIEWS | {"Transpose"}


def turned_back(
    facts: Facts, steps: Sequence[Step], kept: Sequence[ir.Value], output: ir.Value
) -> tuple[ir.Node, ...]:
    """The Transpose that stands right before the steps, what follows them, and the Transpose back; or ().

    The same with what changes a shape alone, and back.
    """
    first = steps[0].data.producer() if steps else None
    if first is None or not _turns(first) or steps[0].data not in kept:
        return ()
    if any(a.node.outputs[0] is not b.data for a, b in pairwise(steps)):
        return ()
    if any(sole_reader(value) is None for value in (steps[0].data, *(s.node.outputs[0] for s in steps))):
        return ()
    chain = [first]
    value = output
    while (node := sole_reader(value)) is not None:
        chain.append(node)
        if _turns(node):
            return tuple(chain) if _is_inverse(facts, first, node) else ()
        if not _is_elementwise(facts, node):
            return ()
        value = node.outputs[0]
    return ()


def _turns(node: ir.Node) -> bool:
    return node.op_type in _TURNS and node.domain == ""


def _is_elementwise(facts: Facts, node: ir.Node) -> bool:
    if node.domain != "":
        return False
    if node.op_type == "Clip":  # its bounds are scalars
        return all(v is None or facts.shapes.rank(v) == 0 for v in node.inputs[1:])
    return node.op_type in UNARY and len(node.outputs) == 1


def _is_inverse(facts: Facts, first: ir.Node, last: ir.Node) -> bool:
    if first.op_type in VIEWS and last.op_type in VIEWS:
        source = facts.shapes.of(first.inputs[0])
        return source is not None and source == facts.shapes.of(last.outputs[0])
    if first.op_type != last.op_type:
        return False
    rank = facts.shapes.rank(first.inputs[0])
    if rank is None:
        return False
    there, back = permutation_of(first, rank), permutation_of(last, rank)
    return all(there[axis] == k for k, axis in enumerate(back))
