"""Doing a fold: new numbers into the linear operators, the affine operators out of the graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from normfuse.folding import elementwise
from normfuse.folding.affine import Array, trimmed
from normfuse.folding.linear import Linear
from normfuse.folding.plan import Plan
from normfuse.folding.stop import Stop
from normfuse.folding.weights import Leaf, Numbers, compute
from normfuse.graph import surgery
from normfuse.graph.facts import Facts

RENAMED = "_folded"
"""What the name of a value ends in that no longer holds what its name stood for."""


def numbers(facts: Facts, plan: Plan) -> list[Numbers] | Stop:
    """The new weights and biases of all leaves, or why one of them cannot be; changes nothing."""
    found: list[Numbers] = []
    for leaf in plan.leaves:
        new = compute(facts, leaf)
        if isinstance(new, Stop):
            return new
        found.append(new)
    return found


def cost(facts: Facts, plan: Plan) -> tuple[int, int]:
    """How many bytes of weights a plan rewrites, and how many of these it copies for their other readers."""
    rewritten = copied = 0
    for leaf in plan.leaves:
        dtype = facts.shapes.dtype(leaf.linear.weight) or ir.DataType.FLOAT
        size = int(math.prod(leaf.linear.view) * dtype.itemsize)
        rewritten += size
        copied += size if surgery.is_shared(leaf.linear.weight) else 0
    return rewritten, copied


@dataclass(frozen=True)
class Done:
    """What a fold has changed.

    grown: by how many bytes the constants have grown. removed: how many nodes are gone, less those that came.
    changed: values that are still there, hold other numbers than before, and have other names for that.
    """

    grown: int
    removed: int
    changed: tuple[ir.Value, ...]


def perform(facts: Facts, plan: Plan, new: Sequence[Numbers]) -> Done:
    """Change the graph as planned."""
    name = plan.output.name
    positions = [step.node.inputs.index(step.data) for step in plan.steps]
    stored = [_store(facts, leaf, numbers) for leaf, numbers in zip(plan.leaves, new, strict=True)]
    surviving = _last_output(plan)
    for step, position in zip(plan.steps, positions, strict=True):
        data, output = step.node.inputs[position], step.node.outputs[0]
        assert data is not None
        if output is surviving:
            surgery.supersede(facts, output, data)
        else:
            output.replace_all_uses_with(data)
    removed = _turn_back(facts, plan.turned) if plan.turned else 0
    removed += surgery.remove_dead(facts, [step.node for step in reversed(plan.steps)])
    adds = [add for _, add in stored if add is not None]
    affected = (*plan.changed, *(value for add in adds for value in (add.inputs[0], add.outputs[0]) if value))
    changed = tuple(v for v in dict.fromkeys(affected) if v.name != name and v.uses())
    for value in changed:
        if not value.is_graph_output():
            surgery.rename(facts, value, f"{(value.name or '').removesuffix(RENAMED)}{RENAMED}")
    return Done(sum(grown for grown, _ in stored), removed - len(adds), changed)


def _last_output(plan: Plan) -> ir.Value | None:
    """The output of the steps whose name something else takes over."""
    if not plan.behind:
        return None
    return plan.steps[-1].node.outputs[0] if plan.turned else plan.output


def _store(facts: Facts, leaf: Leaf, new: Numbers) -> tuple[int, ir.Node | None]:
    """Give a linear operator its new numbers; returns the bytes that were added, and the new Add if any."""
    linear, node = leaf.linear, leaf.linear.node
    stem = node.name or linear.output.name
    added = 0
    if new.weight is not None:
        added += surgery.set_constant(facts, node, linear.weight_index, new.weight, f"{stem}/weight")
    if new.bias is None:
        return added, None
    if linear.slot is not None:
        added += surgery.set_constant(facts, node, linear.slot, new.bias.reshape(-1), f"{stem}/bias")
        if linear.share != 1.0:
            node.attributes["beta"] = ir.AttrFloat32("beta", 1.0)
        return added, None
    bias = trimmed(new.bias)
    if leaf.add is not None:
        index = next(k for k, value in enumerate(leaf.add.inputs) if value is not linear.output)
        return added + surgery.set_constant(facts, leaf.add, index, bias, f"{stem}/bias"), None
    return added + int(bias.nbytes), _add_behind(facts, linear, bias, f"{stem}/bias")


def _add_behind(facts: Facts, linear: Linear, bias: Array, wish: str) -> ir.Node:
    """An Add of a constant behind an operator that has no bias of its own."""
    raw = linear.output
    constant = surgery.add_constant(facts, bias, wish)
    node = ir.node("Add", [raw, constant], name=facts.names.node(wish))
    surgery.insert_behind(facts, raw, node, f"{raw.name}{RENAMED}")
    return node


def _turn_back(facts: Facts, turned: Sequence[ir.Node]) -> int:
    """Take two operators out that undo each other; what is between works in the layout before the first."""
    first, *between, last = turned
    source = first.inputs[0]
    assert source is not None
    first.outputs[0].replace_all_uses_with(source)
    shape = facts.shapes.of(source)
    idle: list[ir.Node] = []
    for node in between:
        output, data = node.outputs[0], node.inputs[0]
        assert data is not None
        if elementwise.is_identity(facts, node):
            output.replace_all_uses_with(data)
            idle.append(node)
            continue
        output.shape = source.shape
        if shape is not None:
            facts.shapes.set(output, shape, facts.shapes.dtype(output))
        surgery.rename(facts, output, f"{output.name}_turned")
    end = last.inputs[0]
    assert end is not None
    surgery.supersede(facts, last.outputs[0], end)
    return surgery.remove_dead(facts, [last, *reversed(idle), first])
