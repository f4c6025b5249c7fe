"""From an affine forward to the linear operators that read it.

    before   x -> BatchNormalization -> Flatten -> Gemm(W, C) -> y
    after    x -> Flatten -> Gemm(W * scale, C + W shift) -> y

All readers have to take it in. A scale always passes; a shift only where every output sees all of it: not
through padding, nor through a ConvTranspose whose windows overlap unevenly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from normfuse.folding import elementwise, layout, linear
from normfuse.folding.activations import ends_activation
from normfuse.folding.affine import Affine
from normfuse.folding.elementwise import Step
from normfuse.folding.plan import Plan, anchor_of, data_reader, data_readers, gains, kind_of
from normfuse.folding.reach import MAX_NODES, MAX_READERS
from normfuse.folding.stop import NOTHING_TO_GAIN, Stop
from normfuse.folding.weights import Leaf
from normfuse.graph.facts import Facts


def find(facts: Facts, first: ir.Node) -> Plan | Stop:
    """The fold whose first affine is `first`, or why there is none."""
    step = elementwise.read(facts, first)
    if not isinstance(step, Step):
        return Stop("no-linear-neighbour") if step is None else Stop(step.reason, step.detail)
    if ends_activation(first):
        return NOTHING_TO_GAIN
    walk = _Walk(facts, [step])
    stop = walk.follow(first.outputs[0], step.affine)
    return walk.plan() if stop is None else Stop(stop.reason, stop.detail)


@dataclass
class _Walk:
    """What one walk has met so far, along the data."""

    facts: Facts
    steps: list[Step]
    changed: list[ir.Value] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    met: set[ir.Node] = field(default_factory=set)

    def follow(self, value: ir.Value, affine: Affine) -> Stop | None:
        """Take `affine` from `value` and give it to all who read it; None when each of them could take it."""
        if not affine.scales and not affine.moves:
            return None
        readers = data_readers(value)
        if value.is_graph_output():
            return Stop("no-linear-neighbour", f"{value.name!r} is an output of the graph")
        if len(readers) > MAX_READERS:
            return Stop("no-linear-neighbour", f"{value.name!r} is read {len(readers)} times")
        for reader in readers:
            stop = self._give(reader, value, affine)
            if stop is not None:
                return stop
        return None

    def _give(self, node: ir.Node, value: ir.Value, affine: Affine) -> Stop | None:
        producer = value.producer()
        if node in self.met or len(self.met) > MAX_NODES:
            return Stop("no-linear-neighbour", f"it enters {node.op_type} {node.name!r} twice")
        self.met.add(node)
        if producer is None or node.graph is not producer.graph:
            return Stop("no-linear-neighbour", f"{value.name!r} is read by a body")
        found = linear.read(self.facts, node)
        if isinstance(found, Stop):
            return found
        if found is not None:
            return self._arrive(found, value, affine)
        step = elementwise.read(self.facts, node)
        if isinstance(step, Stop):
            return step
        if step is not None:
            self.steps.append(step)
            return self.follow(node.outputs[0], affine.then(step.affine))
        if not layout.is_layout(node):
            return Stop("no-linear-neighbour", f"{node.op_type} {node.name!r} stands there")
        moved = layout.forward(self.facts, node, value, affine)
        if isinstance(moved, Stop):
            return moved
        self.changed += [output for output, share in moved if share.scales or share.moves]
        return next((s for out, share in moved if (s := self.follow(out, share)) is not None), None)

    def _arrive(self, found: linear.Linear, value: ir.Value, affine: Affine) -> Stop | None:
        if found.data is not value:
            return Stop("no-linear-neighbour", f"{value.name!r} is no data of {found.node.op_type}")
        refused = found.inner.refuse(affine)
        if refused is not None:
            return refused
        if affine.moves and found.rigid:
            return Stop("padding-not-invariant", found.rigid, reached=True)
        keep = self._add_behind(found) if found.slot is None and affine.moves else None
        if keep is not None:
            self.changed.append(found.output)
        self.leaves.append(Leaf(found, affine, behind=False, add=keep))
        return None

    def _add_behind(self, found: linear.Linear) -> ir.Node | None:
        """The Add that is the bias of an operator without one."""
        node = data_reader(found.output)
        step = elementwise.read(self.facts, node) if node is not None and node.op_type == "Add" else None
        if not isinstance(step, Step) or found.outer.refuse(step.affine) is not None:
            return None
        return node

    def plan(self) -> Plan | Stop:
        """What is to be done, or a Stop where nothing would be gained."""
        steps = tuple(self.steps)
        if not self.leaves:
            return Stop("no-linear-neighbour")
        if not gains(steps, self.leaves):
            return NOTHING_TO_GAIN
        leaf = self.leaves[0]
        return Plan(
            kind_of(steps), anchor_of(steps), steps[0].data,
            leaf.linear.output if leaf.add is None else leaf.add.outputs[0],
            steps, tuple(self.changed), tuple(self.leaves), behind=False,
        )  # fmt: skip
