"""Norms of weights alone: weight normalization, spectral normalization, weight standardization.

    before   W -> ReduceL2 -> Div(W, .) -> Mul(g) -> Conv      all of it constant
    after    W' -> Conv

Salimans and Kingma, 2016; Miyato et al., 2018. What does not depend on the model's inputs is computed once,
in float64, and rounded once, instead of at every run or, in the weight's own type, at every start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from normfuse.algebra.operators import REDUCTIONS
from normfuse.graph.constants import evaluate
from normfuse.graph.facts import Facts

_SEEDS = frozenset({*REDUCTIONS, "MatMul", "Gemm"}) - {"GlobalAveragePool"}
_MEMBERS = _SEEDS | frozenset(
    (
        *(
            "Abs",
            "Add",
            "Div",
            "Mul",
            "Neg",
            "Pow",
            "Reciprocal",
            "Sqrt",
            "Sub",
            "Max",
            "Clip",
            "Cast",
            "Identity",
        ),
        *("Concat", "Expand", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"),
    )
)
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
MAX_ELEMENTS = 1 << 26

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class WeightNorm:
    """A value that only depends on weights: what it holds, rounded to its own type, and its nodes."""

    output: ir.Value
    array: Array
    spelled: tuple[ir.Node, ...]


def find_weight_norms(facts: Facts, graph: ir.Graph) -> Iterator[WeightNorm]:
    """Every value behind a reduction of weights that something other than weights uses."""
    members: dict[ir.Node, None] = {}
    for node in graph:
        begins = node.op_type in _SEEDS
        if (
            not (members or begins)
            or node.domain != ""
            or node.op_type not in _MEMBERS
            or len(node.outputs) != 1
        ):
            continue
        operands = [v for v in node.inputs if v is not None]
        inside = [v for v in operands if v.producer() in members]
        if (inside or begins) and all(v in inside or facts.constants.is_known(v) for v in operands):
            members[node] = None
    for node in members:
        output = node.outputs[0]
        if facts.shapes.dtype(output) in _FLOATS and _is_used_outside(output, members):
            found = _computed(facts, output, members)
            if found is not None:
                yield found


def _is_used_outside(value: ir.Value, members: dict[ir.Node, None]) -> bool:
    return not value.is_graph_output() and any(c not in members for c in value.consumers())


def _computed(facts: Facts, output: ir.Value, members: dict[ir.Node, None]) -> WeightNorm | None:
    needed = _needed(output, members)
    if not any(n.op_type in _SEEDS for n in needed):
        return None
    known: dict[ir.Value, Array] = {}
    for node in needed:
        result = _in_float64(facts, node, known)
        if result is None or result.size > MAX_ELEMENTS:
            return None
        known[node.outputs[0]] = result
    dtype = facts.shapes.dtype(output)
    assert dtype is not None
    with np.errstate(over="ignore"):
        array = known[output].astype(dtype.numpy())
    finite = bool(np.all(np.isfinite(array.astype(np.float64))))
    return WeightNorm(output, array, needed) if finite else None


def _needed(output: ir.Value, members: dict[ir.Node, None]) -> tuple[ir.Node, ...]:
    """The members that compute `output`, in graph order."""
    wanted: set[ir.Node] = set()
    queue = [output.producer()]
    while queue:
        node = queue.pop()
        if node is not None and node in members and node not in wanted:
            wanted.add(node)
            queue.extend(v.producer() for v in node.inputs if v is not None)
    return tuple(n for n in members if n in wanted)


def _in_float64(facts: Facts, node: ir.Node, known: dict[ir.Value, Array]) -> Array | None:
    """What a node computes when nothing is rounded to the weight's type in between."""
    arrays: list[Array | None] = []
    for value in node.inputs:
        array = None if value is None else known.get(value)
        if array is None and value is not None:
            array = facts.constants.get(value)
            if array is None:
                return None
            array = array.astype(np.float64) if facts.shapes.dtype(value) in _FLOATS else array
        arrays.append(array)
    if node.op_type == "Cast" and facts.shapes.dtype(node.outputs[0]) in _FLOATS:
        return arrays[0] if arrays[0] is None else arrays[0].astype(np.float64)
    return evaluate(node, arrays, facts.opset, MAX_ELEMENTS)
