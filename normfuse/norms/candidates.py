"""Where to start a walk: values that a reduction reads, or whose square, scaled or cast form it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from normfuse.algebra.operators import REDUCTIONS
from normfuse.graph.facts import Facts

FUSED_NORMS = frozenset(
    {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "InstanceNormalization"}
)
_UNARY = frozenset({"Cast", "CastLike", "Neg", "Identity", "Abs", "Pow"})
_MAX_STEPS = 4


def bases(facts: Facts, nodes: Iterable[ir.Node]) -> Iterator[tuple[ir.Node, list[ir.Value]]]:
    """Each reduction among the nodes of a graph with the values its statistic may be of, earliest first."""
    for node in nodes:
        if node.domain == "" and (node.op_type in REDUCTIONS or node.op_type in FUSED_NORMS):
            chain = list(_chain(facts, node))
            if chain:
                yield node, chain[::-1]


def _chain(facts: Facts, reduction: ir.Node) -> Iterator[ir.Value]:
    value = reduction.inputs[0] if reduction.inputs else None
    for _ in range(_MAX_STEPS):
        if value is None or facts.constants.is_known(value):
            return
        yield value
        node = value.producer()
        if node is None or node.graph is not reduction.graph:
            return
        value = _single_source(facts, node)


def _single_source(facts: Facts, node: ir.Node) -> ir.Value | None:
    """The one run-time value of which a node computes a multiple or a power."""
    if node.domain != "":
        return None
    if node.op_type in _UNARY and node.inputs:
        return node.inputs[0]
    if node.op_type in ("Mul", "Div"):
        first, second = node.inputs
        if node.op_type == "Mul" and _origin(facts, first) is _origin(facts, second):
            return first
        if facts.constants.is_known(second):
            return first
        return second if node.op_type == "Mul" and facts.constants.is_known(first) else None
    return None


def _origin(facts: Facts, value: ir.Value | None) -> ir.Value | None:
    """The value itself, before operators that change nothing."""
    for _ in range(_MAX_STEPS):
        node = None if value is None else value.producer()
        if node is None or node.domain != "" or node.op_type not in ("Identity", "Cast"):
            return value
        if facts.shapes.dtype(node.inputs[0]) != facts.shapes.dtype(value):
            return value
        value = node.inputs[0]
    return value
