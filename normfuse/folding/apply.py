"""Doing a fold: new numbers into the linear operators, the affine operators out of the graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from normfuse.folding import elementwise
from normfuse.folding.affine import Array, trimmed
from normfuse.folding.linear import Linear
from normfuse.folding.plan import Plan
from normfuse.folding.stop import Stop
from normfuse.folding.weights import Leaf, Numbers, compute
from normfuse.graph import surgery
from normfuse.graph.facts import Facts


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


def perform(facts: Facts, plan: Plan, new: Sequence[Numbers]) -> tuple[int, int]:
    """Change the graph; returns by how many bytes its constants have grown, and how many nodes have gone."""
    name = plan.output.name
    positions = [step.node.inputs.index(step.data) for step in plan.steps]
    added = sum(_store(facts, leaf, numbers) for leaf, numbers in zip(plan.leaves, new, strict=True))
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
    removed -= sum(leaf.linear.slot is None and leaf.add is None and numbers.bias is not None
                   for leaf, numbers in zip(plan.leaves, new, strict=True))  # fmt: skip
    for value in plan.changed:
        if value.name != name and value.uses() and not value.is_graph_output():
            surgery.rename(facts, value, f"{value.name}_folded")
    return added, removed


def _last_output(plan: Plan) -> ir.Value | None:
    """The output of the steps whose name something else takes over."""
    if not plan.behind:
        return None
    return plan.steps[-1].node.outputs[0] if plan.turned else plan.output


def _store(facts: Facts, leaf: Leaf, new: Numbers) -> int:
    linear, node = leaf.linear, leaf.linear.node
    stem = node.name or linear.output.name
    added = 0
    if new.weight is not None:
        added += surgery.set_constant(facts, node, linear.weight_index, new.weight, f"{stem}/weight")
    if new.bias is None:
        return added
    if linear.slot is not None:
        added += surgery.set_constant(facts, node, linear.slot, new.bias.reshape(-1), f"{stem}/bias")
        if linear.share != 1.0:
            node.attributes["beta"] = ir.AttrFloat32("beta", 1.0)
        return added
    bias = trimmed(new.bias)
    if leaf.add is not None:
        index = next(k for k, value in enumerate(leaf.add.inputs) if value is not linear.output)
        return added + surgery.set_constant(facts, leaf.add, index, bias, f"{stem}/bias")
    _add_behind(facts, linear, bias, f"{stem}/bias")
    return added + int(bias.nbytes)


def _add_behind(facts: Facts, linear: Linear, bias: Array, wish: str) -> None:
    """An Add of a constant behind an operator that has no bias of its own."""
    raw = linear.output
    constant = surgery.add_constant(facts, bias, wish)
    node = ir.node("Add", [raw, constant], name=facts.names.node(wish))
    surgery.insert_behind(facts, raw, node, f"{raw.name}/unbiased")


def _turn_back(facts: Facts, turned: Sequence[ir.Node]) -> int:
    """Take two inverse Transposes out; what stands between them works in the layout before the first."""
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
