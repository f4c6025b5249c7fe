"""Ways to get one rewrite wrong: what a careless lowering would emit for a single site of a model.

    Fault("epsilon x10", "layer", of_norm(epsilon=lambda n: n.epsilon * 10))

A fault is planted where the rewrite is made, so that the pipeline does everything else as always, and takes
it back by leaving the site out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from normfuse.folding import apply, chains, elementwise
from normfuse.folding.plan import Plan
from normfuse.folding.stop import Stop
from normfuse.folding.weights import Numbers
from normfuse.graph.facts import Facts
from normfuse.graph.surgery import add_constant
from normfuse.norms.norm import Norm
from normfuse.targets.target import Lowered

Plant = Callable[[pytest.MonkeyPatch, str], None]
"""Breaks the rewrite of the site with that output."""


@dataclass(frozen=True)
class Fault:
    """What is wrong, at which site, and on which target that site is rewritten.

    then: the lowering that is taken in the place of the broken one, where the target has another.
    """

    name: str
    site: str
    plant: Plant
    target: str = "ort-cpu"
    then: str = ""

    def __str__(self) -> str:
        return f"{self.site}: {self.name}"


def of_norm(**changes: Callable[[Norm], Any]) -> Plant:
    """The lowering is told another norm than the one that was recognised."""

    def plant(patch: pytest.MonkeyPatch, site: str) -> None:
        from normfuse.pipeline import rewrite

        def lower(facts: Facts, norm: Norm, *how_to: Any) -> Any:
            if norm.output.name == site:
                norm = dataclasses.replace(norm, **{name: how(norm) for name, how in changes.items()})
            return original(facts, norm, *how_to)

        original = rewrite.lower
        patch.setattr(rewrite, "lower", lower)

    return plant


Edit = Callable[[Facts, list[ir.Node]], None]


def of_nodes(edit: Edit) -> Plant:
    """The nodes of the default lowering are changed before they enter the graph.

    The last one computes the site.
    """

    def plant(patch: pytest.MonkeyPatch, site: str) -> None:
        from normfuse.pipeline import rewrite

        def lower(facts: Facts, norm: Norm, *how_to: Any) -> Any:
            lowered = original(facts, norm, *how_to)
            *_, choice = how_to
            if norm.output.name != site or choice is not None:
                return lowered
            assert isinstance(lowered, Lowered)
            nodes = list(lowered.nodes)
            edit(facts, nodes)
            return dataclasses.replace(lowered, nodes=tuple(nodes), output=nodes[-1].outputs[0])

        original = rewrite.lower
        patch.setattr(rewrite, "lower", lower)

    return plant


def of_response(**changes: Callable[[Any], Any]) -> Plant:
    """LRN is told another window or other constants."""

    def plant(patch: pytest.MonkeyPatch, site: str) -> None:
        from normfuse.pipeline import rewrite

        def lower(facts: Facts, found: Any, target: Any) -> Any:
            if found.output.name == site:
                found = dataclasses.replace(found, **{name: how(found) for name, how in changes.items()})
            return original(facts, found, target)

        original = rewrite.lower_response
        patch.setattr(rewrite, "lower_response", lower)

    return plant


def of_fold(change: Callable[[Plan, Numbers], dict[str, Any]]) -> Plant:
    """The new weights or the new bias of a fold are others."""

    def plant(patch: pytest.MonkeyPatch, site: str) -> None:
        def numbers(facts: Facts, plan: Plan) -> list[Numbers] | Stop:
            found = original(facts, plan)
            if isinstance(found, Stop) or plan.output.name != site:
                return found
            return [dataclasses.replace(n, **change(plan, n)) for n in found]

        original = apply.numbers
        patch.setattr(apply, "numbers", numbers)

    return plant


def of_statistics(change: Callable[[float], float]) -> Plant:
    """The epsilon of the BatchNormalization that is folded is read wrongly."""

    def plant(patch: pytest.MonkeyPatch, site: str) -> None:
        def epsilon_of(node: ir.Node) -> float:
            epsilon = original(node)
            return change(epsilon) if (node.outputs[0].name or "").startswith(site) else epsilon

        original = elementwise.epsilon_of
        patch.setattr(elementwise, "epsilon_of", epsilon_of)

    return plant


def of_guard(edit: Callable[[ir.Node], None]) -> Plant:
    """The Sum in the place of a residual Add is changed."""

    def plant(patch: pytest.MonkeyPatch, site: str) -> None:
        from normfuse.pipeline import rewrite

        def guard(facts: Facts, graph: ir.Graph, leave: Any) -> Any:
            guarded = original(facts, graph, leave)
            for node in graph:
                if node.op_type == "Sum" and any(g.output == site == node.outputs[0].name for g in guarded):
                    edit(node)
            return guarded

        original = rewrite.guard_residuals
        patch.setattr(rewrite, "guard_residuals", guard)

    return plant


def of_rejoined(edit: Callable[[Facts, ir.Node], None]) -> Plant:
    """The BatchNormalization that a lone scale and shift become is changed."""

    def plant(patch: pytest.MonkeyPatch, site: str) -> None:
        def rejoin(facts: Facts, chain: chains.Chain) -> Sequence[ir.Node]:
            name = chain.output.name
            nodes = original(facts, chain)
            for node in nodes if name == site else ():
                edit(facts, node)
            return nodes

        original = chains._rejoin
        patch.setattr(chains, "_rejoin", rejoin)

    return plant


# Edits of nodes, by the operator that they look for.


def attribute(op_type: str, name: str, change: Callable[[Any], Any]) -> Edit:
    """Another value for an attribute of the first such node."""

    def edit(facts: Facts, nodes: list[ir.Node]) -> None:
        node = _first(nodes, op_type)
        node.attributes[name] = ir.convenience.convert_attribute(name, change(node.attributes[name].value))

    return edit


def operand(op_type: str, index: int, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """Another constant for an operand of the first such node."""

    def edit(facts: Facts, nodes: list[ir.Node]) -> None:
        change_operand(facts, _first(nodes, op_type), index, change)

    return edit


def change_operand(
    facts: Facts, node: ir.Node, index: int, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """A new constant, made of the one that stands there."""
    value = node.inputs[index]
    assert value is not None
    array = facts.constants.get(value)
    assert array is not None
    node.replace_input_with(index, add_constant(facts, change(array), f"wrong {index}"))


def swapped(op_type: str, first: int, second: int) -> Edit:
    """Two operands of the first such node in the wrong order."""

    def edit(facts: Facts, nodes: list[ir.Node]) -> None:
        node = _first(nodes, op_type)
        a, b = node.inputs[first], node.inputs[second]
        node.replace_input_with(first, b)
        node.replace_input_with(second, a)

    return edit


def without(op_type: str) -> Edit:
    """The last such node is forgotten: what it reads stands for what it writes."""

    def edit(facts: Facts, nodes: list[ir.Node]) -> None:
        node = next(node for node in reversed(nodes) if node.op_type == op_type)
        source = node.inputs[0]
        assert source is not None
        node.outputs[0].replace_all_uses_with(source)
        nodes.remove(node)
        for position, value in enumerate(node.inputs):
            if value is not None:
                node.replace_input_with(position, None)

    return edit


def through(dtype: ir.DataType) -> Edit:
    """What the first node reads goes through a type that is too narrow."""

    def edit(facts: Facts, nodes: list[ir.Node]) -> None:
        source = nodes[0].inputs[0]
        assert source is not None
        own = facts.shapes.dtype(source)
        assert own is not None
        there = _cast(facts, source, dtype)
        back = _cast(facts, there.outputs[0], own)
        nodes[0].replace_input_with(0, back.outputs[0])
        nodes[:0] = [there, back]

    return edit


def ends_in(dtype: ir.DataType) -> Edit:
    """The result is left in another type: the last cast is missing."""

    def edit(facts: Facts, nodes: list[ir.Node]) -> None:
        nodes.append(_cast(facts, nodes[-1].outputs[0], dtype))

    return edit


def _cast(facts: Facts, value: ir.Value, dtype: ir.DataType) -> ir.Node:
    node = ir.node("Cast", [value], {"to": dtype}, name=facts.names.node("wrong cast"))
    node.outputs[0].name = facts.names.value("wrong cast")
    return node


def _first(nodes: Sequence[ir.Node], op_type: str) -> ir.Node:
    return next(node for node in nodes if node.op_type == op_type)


def dropped_input(op_type: str, index: int) -> Edit:
    """The first such node without one of its optional operands."""

    def edit(facts: Facts, nodes: list[ir.Node]) -> None:
        node = _first(nodes, op_type)
        assert index == len(node.inputs) - 1
        node.resize_inputs(index)

    return edit
