"""What a fold is, from the walk that found it to the report.

Plan          which nodes go, which stay, which linear operators take the affine in: graph objects
FoldRecord    what was done: plain data for the report
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from normfuse.folding.elementwise import Step
from normfuse.folding.weights import Leaf

Kind = Literal["BatchNorm", "Affine"]


@dataclass(frozen=True)
class Plan:
    """A fold that has been found and not been done.

    anchor: the BatchNormalization, or else the last of the affine operators.
    input, output: what the site reads, and the value whose name survives.
    steps: the affine and identity operators that go, along the data.
    changed: values that stay and hold other numbers afterwards: those between the linear operators and the
        steps.
    leaves: the linear operators, each with what it takes in.
    turned: two Transposes or Reshapes that undo each other once the steps are gone, and what is between.
    """

    kind: Kind
    anchor: ir.Node
    input: ir.Value
    output: ir.Value
    steps: tuple[Step, ...]
    changed: tuple[ir.Value, ...]
    leaves: tuple[Leaf, ...]
    behind: bool
    turned: tuple[ir.Node, ...] = ()

    @property
    def operators(self) -> str:
        """The linear operators by type, each once, such as "Conv"."""
        return " ".join(dict.fromkeys(leaf.linear.node.op_type for leaf in self.leaves))

    @property
    def spelling(self) -> str:
        """All operators of the site, along the data."""
        linear = [leaf.linear.node.op_type for leaf in self.leaves]
        steps = [step.node.op_type for step in self.steps]
        return " ".join(linear + steps if self.behind else steps + linear)


@dataclass(frozen=True)
class FoldRecord:
    """One fold that was done.

    anchor, input, output: names; output survives in the graph.
    operator: the linear operators that took the affine in, such as "Conv".
    nodes_replaced: how many nodes are gone, less those that came.
    rounding: the worst rounding of a weight, relative to the largest of its channel.
    added_bytes: by how much the constants have grown, for a shared weight is copied.
    """

    kind: Kind
    anchor: str
    input: str
    output: str
    spelling: str
    operator: str
    nodes_replaced: int
    rounding: float
    added_bytes: int
    detail: str = ""


def kind_of(steps: tuple[Step, ...]) -> Kind:
    """BatchNorm where one is among the steps, or what it is split into: a scale per channel, then a shift."""
    scaled = False
    for step in steps:
        if step.node.op_type == "BatchNormalization":
            return "BatchNorm"
        varies = bool(step.affine.varies())
        scaled = scaled or (varies and step.node.op_type in ("Mul", "Div"))
        if scaled and varies and step.node.op_type in ("Add", "Sub", "Sum"):
            return "BatchNorm"
    return "Affine"


def gains(steps: Sequence[Step], leaves: Sequence[Leaf]) -> bool:
    """Whether nodes go, or a BatchNormalization becomes the bias of an operator that has none of its own."""
    added = sum(leaf.adds for leaf in leaves)
    is_norm = any(step.node.op_type == "BatchNormalization" for step in steps)
    return len(steps) > added or (len(steps) == added and is_norm)


def anchor_of(steps: tuple[Step, ...]) -> ir.Node:
    """The last BatchNormalization of the steps, or else the last of them that is an affine."""
    norms = [step.node for step in steps if step.node.op_type == "BatchNormalization"]
    affine = [step.node for step in steps if step.affine.scales or step.affine.moves]
    return (norms or affine or [steps[-1].node])[-1]


def data_readers(value: ir.Value) -> list[ir.Node]:
    """Who reads the elements of `value`, once for each use.

    Its shape alone, which no affine changes, may be read by anyone.
    """
    return [use.node for use in value.uses() if use.node.op_type not in ("Shape", "Size")]


def is_only_reader(value: ir.Value) -> bool:
    """Whether one node alone, of the same graph, reads the elements of `value`, and no output is it."""
    readers = data_readers(value)
    producer = value.producer()
    if producer is None or len(readers) != 1 or value.is_graph_output():
        return False
    return readers[0].graph is producer.graph


def sole_reader(value: ir.Value) -> ir.Node | None:
    """The one node that reads `value` in any way."""
    return data_readers(value)[0] if len(value.uses()) == 1 and is_only_reader(value) else None


def data_reader(value: ir.Value) -> ir.Node | None:
    """The one node that reads the elements of `value`."""
    return data_readers(value)[0] if is_only_reader(value) else None
