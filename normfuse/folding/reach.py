"""Which affines may reach a linear operator at all: a look at operators alone, before any constant is read.

Most affines of a model stand nowhere near one. Each node is looked at once a sweep, however long the chains:
what is found for the end of a chain is remembered for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from normfuse.folding import elementwise, layout, linear
from normfuse.folding.plan import data_readers
from normfuse.graph.facts import Facts

MAX_NODES = 64
"""Nodes of one walk; a longer chain is folded in pieces."""
MAX_READERS = 8
NORMS = frozenset({
    "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm",
})  # fmt: skip
"""The affine behind one of these is that norm's own."""
_VIEWS = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
_ROOTS = frozenset({"Sqrt"})
_MAX_VIEWS, _MAX_SHIFTS = 4, 2


@dataclass(frozen=True)
class _Way:
    """How a linear operator is reached: over how many nodes and affines, and whether it has no bias slot."""

    nodes: int
    affines: int
    bare: bool


_Step = Callable[[ir.Node], _Way | tuple[ir.Node, int] | None]


class Reach:
    """What one sweep knows of the ways from affines to linear operators."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._back: dict[ir.Node, _Way | None] = {}
        self._forth: dict[ir.Node, _Way | None] = {}

    def behind(self, node: ir.Node) -> bool:
        """Whether `node` may stand behind a linear operator and be more than its bias."""
        way = self._follow(node, self._back, self._before)
        if way is None or way.nodes > MAX_NODES:
            return False
        return not (way.bare and way.affines == 1 and node.op_type in ("Add", "Sub", "Sum"))

    def front(self, node: ir.Node) -> bool:
        """Whether `node` may stand in front of linear operators."""
        data = elementwise.data_of(self._facts, node)
        producer = None if data is None else data.producer()
        if producer is not None and producer.op_type in NORMS:
            return False
        way = self._follow(node, self._forth, self._after)
        return way is not None and way.nodes <= MAX_NODES

    def _follow(self, node: ir.Node, known: dict[ir.Node, _Way | None], step: _Step) -> _Way | None:
        path: list[tuple[ir.Node, int]] = []
        current, way = node, None
        while True:
            if current in known:
                way = known[current]
                break
            found = step(current)
            if found is None or isinstance(found, _Way):
                way = known[current] = found
                break
            following, affines = found
            known[current] = None  # until it is known better; also ends a cycle
            path.append((current, affines))
            current = following
        for passed, affines in reversed(path):
            if way is not None:
                way = _Way(way.nodes + 1, way.affines + affines, way.bare)
            known[passed] = way
        return known[node]

    def _before(self, node: ir.Node) -> _Way | tuple[ir.Node, int] | None:
        data = elementwise.data_of(self._facts, node)
        affine = 0 if data is None else 1
        if data is None and (layout.is_layout(node) or elementwise.is_widening(self._facts, node)):
            data = node.inputs[0]
        if data is None:
            if linear.is_linear(node) and linear.may_take(self._facts, node):
                return _Way(1, 0, node.op_type in ("MatMul", "Einsum"))
            return None
        producer = data.producer()
        return None if producer is None else (producer, affine)

    def _after(self, node: ir.Node) -> _Way | tuple[ir.Node, int] | None:
        value = node.outputs[0]
        readers = data_readers(value)
        if not readers or len(readers) > MAX_READERS or value.is_graph_output():
            return None
        if not all(self._may_pass(reader, value) for reader in readers):
            return None
        reader = readers[0]
        if linear.is_linear(reader) or len(readers) > 1 or len(reader.outputs) > 1:
            return _Way(1, 0, False)
        return reader, 1

    def _may_pass(self, node: ir.Node, value: ir.Value) -> bool:
        if linear.is_linear(node):
            return linear.may_take(self._facts, node, value)
        return layout.is_layout(node) or elementwise.data_of(self._facts, node) is value


def is_of_a_norm(facts: Facts, node: ir.Node) -> bool:
    """Whether an affine is the scale and shift of a norm, as a target writes it.

    Where a norm is said as a view, or as its statistics and a division by their root, its affine is a
    BatchNormalization of mean 0 and variance 1 behind that; where its epsilon stands beside the deviation, an
    Add behind a division. It belongs to the norm all the same, or a second run would go on where the first
    ended.
    """
    data = elementwise.data_of(facts, node)
    producer = None if data is None else data.producer()
    if producer is not None and _divides_by(producer, NORMS):
        return True
    if not _is_bare_norm(node):
        return False
    for _ in range(_MAX_VIEWS):
        if producer is None or producer.op_type not in _VIEWS or producer.inputs[0] is None:
            break
        producer = producer.inputs[0].producer()
    return producer is not None and (producer.op_type in NORMS or _divides_by(producer, _ROOTS))


def _is_bare_norm(node: ir.Node) -> bool:
    """Whether this is a BatchNormalization that only scales and shifts, as targets write it."""
    epsilon = node.attributes.get("epsilon") if node.op_type == "BatchNormalization" else None
    return epsilon is not None and epsilon.as_float() == 0


def _divides_by(node: ir.Node, operators: frozenset[str]) -> bool:
    """Whether this divides by what one of the operators computes, scaled or shifted."""
    divisor = node.inputs[1] if node.op_type == "Div" else None
    root = None if divisor is None else divisor.producer()
    for _ in range(_MAX_SHIFTS):
        if root is None or root.op_type not in ("Add", "Mul"):
            break
        producers = [p for v in root.inputs if v is not None and (p := v.producer()) is not None]
        root = producers[0] if len(producers) == 1 else None
    return root is not None and root.op_type in operators
