"""From an affine back to the linear operators whose output it changes.

    before   x -> Conv(W, b) -> Transpose -> BatchNormalization -> y
    after    x -> Conv(W * scale, b * scale + shift) -> Transpose -> y

The walk goes from the last affine of a chain against the data: affine operators on the way are taken in,
operators that move channels carry the affine along, a Concat sends a share of it into each branch. Every
branch has to end at a linear operator, and nothing on the way may be read by anyone else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from normfuse.folding import elementwise, layout, linear
from normfuse.folding.affine import Affine, identity
from normfuse.folding.elementwise import Step
from normfuse.folding.plan import Plan, anchor_of, data_reader, data_readers, gains, is_only_reader, kind_of
from normfuse.folding.reach import MAX_NODES
from normfuse.folding.stop import NOTHING_TO_GAIN, Stop
from normfuse.folding.tail import turned_back
from normfuse.folding.weights import Leaf
from normfuse.graph.facts import Facts

ACTIVATIONS = frozenset({
    "Relu", "LeakyRelu", "PRelu", "Sigmoid", "Clip", "Tanh", "Elu", "Selu", "Celu", "HardSigmoid",
    "HardSwish", "Softplus", "Softsign", "Gelu", "Mish", "Erf", "Exp", "Log", "Sqrt", "Abs", "Softmax",
    "LogSoftmax", "ThresholdedRelu", "Pow", "Swish", "Max", "Min",
})  # fmt: skip


def find(facts: Facts, last: ir.Node) -> Plan | Stop:
    """The fold whose last affine is `last`, or why there is none."""
    step = elementwise.read(facts, last)
    if not isinstance(step, Step):
        return Stop("no-linear-neighbour") if step is None else Stop(step.reason, step.detail)
    walk = _Walk(facts)
    stop = walk.follow(last.outputs[0], identity(step.affine.rank), first=True)
    if stop is not None:
        return stop if not stop.reached else walk.reported(stop)
    return walk.plan(last)


@dataclass
class _Walk:
    """What one walk has met so far, against the data."""

    facts: Facts
    steps: list[Step] = field(default_factory=list)
    changed: list[ir.Value] = field(default_factory=list)
    met: set[ir.Node] = field(default_factory=set)
    leaves: list[Leaf] = field(default_factory=list)
    widened: ir.Node | None = None
    budget: int = MAX_NODES

    def follow(self, value: ir.Value, affine: Affine, first: bool = False) -> Stop | None:
        """Go on from `value`, which needs `affine` applied; None when all of it has found a place."""
        while True:
            node = value.producer()
            self.budget -= 1
            if node is None or self.budget < 0:
                what = "too many nodes between" if node else f"{value.name!r} is given, not computed"
                return Stop("no-linear-neighbour", what)
            if node in self.met:
                return Stop("no-linear-neighbour", f"two branches of a Concat meet in {node.name!r}")
            self.met.add(node)
            found = linear.read(self.facts, node)
            if isinstance(found, Stop):
                return found
            if not first and not is_only_reader(value):
                return _reused(value, node)
            if found is not None:
                return self._arrive(found, affine)
            moved = self._through(node, value, affine)
            if isinstance(moved, Stop):
                return moved
            for branch, share in moved[1:]:
                stop = self.follow(branch, share)
                if stop is not None:
                    return stop
            (value, affine), first = moved[0], False

    def _through(self, node: ir.Node, value: ir.Value, affine: Affine) -> layout.Moved | Stop:
        step = elementwise.read(self.facts, node)
        if isinstance(step, Stop):
            return step
        if step is not None:
            self.steps.append(step)
            return [(step.data, step.affine.then(affine))]
        if elementwise.is_widening(self.facts, node) and not self.changed and self.widened is None:
            assert node.inputs[0] is not None
            self.widened = node
            self.steps.append(Step(node, node.inputs[0], identity(affine.rank)))
            return [(node.inputs[0], affine)]
        if not layout.is_layout(node):
            return _blocked(self.facts, node)
        self.changed.append(value)
        return layout.backward(self.facts, node, value, affine)

    def _arrive(self, found: linear.Linear, affine: Affine) -> Stop | None:
        refused = found.outer.refuse(affine)
        if refused is not None:
            return refused
        nearest = self.steps[-1].node if self.steps else None
        is_bias = nearest is not None and nearest.op_type == "Add" and found.output in nearest.inputs
        keep = nearest if found.slot is None and affine.moves and is_bias else None
        if keep is not None:
            self.changed.append(keep.outputs[0])
        self.changed.append(found.output)
        self.leaves.append(Leaf(found, affine, behind=True, add=keep))
        return None

    def reported(self, stop: Stop) -> Stop:
        """The same stop, said to be one a user would ask about where the steps look like a BatchNorm."""
        steps = tuple(reversed(self.steps))
        holds_one = any(step.node.op_type == "BatchNormalization" for step in steps)
        return Stop(stop.reason, stop.detail, reached=kind_of(steps) == "BatchNorm" and not holds_one)

    def plan(self, last: ir.Node) -> Plan | Stop:
        """What is to be done, or a Stop where nothing would be gained or the type does not come back."""
        kept = {leaf.add for leaf in self.leaves}
        whole = tuple(reversed(self.steps))
        steps = tuple(step for step in whole if step.node not in kept)
        if not gains(steps, self.leaves):
            return NOTHING_TO_GAIN
        output = last.outputs[0]
        if self.widened is not None:
            narrowed = _narrowed(self.facts, output, self.widened)
            if narrowed is None:
                return Stop("precision", f"{self.widened.name!r} widens the type for good", reached=True)
            steps, output = (*steps, narrowed), narrowed.node.outputs[0]
        turned = turned_back(self.facts, steps, self.changed, output)
        return Plan(
            kind_of(whole), anchor_of(whole), self.leaves[0].linear.data,
            turned[-1].outputs[0] if turned else output,
            steps, tuple(self.changed), tuple(self.leaves), behind=True, turned=turned,
        )  # fmt: skip


def _narrowed(facts: Facts, output: ir.Value, widened: ir.Node) -> Step | None:
    """The Cast behind the affine that brings back the type of the linear operator."""
    node = data_reader(output)
    if node is None or len(output.uses()) != 1:
        return None
    same = facts.shapes.dtype(node.outputs[0]) == facts.shapes.dtype(widened.inputs[0])
    if node.op_type != "Cast" or not same:
        return None
    return Step(node, output, identity(facts.shapes.rank(output) or 0))


def _reused(value: ir.Value, node: ir.Node) -> Stop:
    count = len(data_readers(value))
    who = "is an output of the graph" if value.is_graph_output() else f"is read {count} times"
    if count == 1 and not value.is_graph_output():
        who = "is read by a body"
    if node.op_type in ACTIVATIONS:
        return Stop("activation-between", f"{node.op_type} {node.name!r}")
    return Stop("linear-output-reused", f"{value.name!r} {who}", reached=linear.is_linear(node))


def _blocked(facts: Facts, node: ir.Node) -> Stop:
    """Why the walk cannot pass `node`."""
    what = f"{node.op_type} {node.name!r}"
    if node.op_type in ACTIVATIONS:
        return Stop("activation-between", what)
    if node.op_type in ("Add", "Sum", "Sub", "Mul", "Div"):
        overridable = [v for v in node.inputs if v is not None and facts.constants.depends_on_overridable(v)]
        if overridable:
            return Stop("overridable-initializer", f"{overridable[0].name!r} is also a graph input")
    if node.op_type in ("Add", "Sum", "Sub"):
        return Stop("residual-between", what)
    return Stop("no-linear-neighbour", f"{what} stands there")
