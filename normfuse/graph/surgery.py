"""Changing a graph: new constants, a value replaced by another, and what nothing needs any more removed.

Only what a rewrite has made useless is removed, never other dead code of the model: normfuse does not touch
what it has not rewritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.graph.scopes import bodies


def add_constant(facts: Facts, array: np.ndarray[Any, Any], wish: str) -> ir.Value:
    """A new initializer of the main graph, visible from every scope, under a name of its own.

    Up to IR version 3 every initializer has to be a graph input as well; there it is written as a Constant
    node when the model is, so that the inputs stay what they were.
    """
    graph = facts.model.graph
    tensor = ir.tensor(np.asarray(array, order="C"), name=facts.names.value(wish))
    value = ir.Value(name=tensor.name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype),
                     const_value=tensor)  # fmt: skip
    graph.register_initializer(value)
    facts.shapes.set(value, array.shape, tensor.dtype)
    return value


def shared_constant(facts: Facts, array: np.ndarray[Any, Any], wish: str) -> ir.Value:
    """The initializer that an earlier call with the same array made, or a new one."""
    key = (array.dtype.str, array.shape, array.tobytes())
    known = facts.made.get(key)
    if known is None or known.graph is not facts.model.graph:
        known = facts.made[key] = add_constant(facts, array, f"normfuse/{wish}")
    return known


def replace(
    facts: Facts, old: ir.Value, nodes: Sequence[ir.Node], new: ir.Value, *, keep: Iterable[ir.Node] = ()
) -> int:
    """Let `new`, which `nodes` compute, stand wherever `old` stood; remove what is then dead.

    The new value takes over the name of the old, so the graph's interface and its users' names survive.
    keep: nodes that must stay even when nothing uses them. Returns how many nodes were removed.
    """
    producer = old.producer()
    if producer is None or producer.graph is None:
        raise ValueError(f"{old.name!r} is not computed by a node of a graph")
    producer.graph.insert_after(producer, nodes)
    _take_over(facts, old, new)
    return remove_dead(facts, [producer], keep)


def reroute(facts: Facts, old: ir.Value, new: ir.Value) -> int:
    """Let an existing value `new` stand wherever `old` stood; remove what is then dead.

    Where `old` is an output of its graph, `new` takes over its name, so it must not be an output or an
    input itself.
    """
    producer = old.producer()
    if producer is None:
        raise ValueError(f"{old.name!r} is not computed by a node of a graph")
    if old.is_graph_output():
        _take_over(facts, old, new)
    else:
        old.replace_all_uses_with(new)
    return remove_dead(facts, [producer])


def _take_over(facts: Facts, old: ir.Value, new: ir.Value) -> None:
    facts.shapes.same_as(new, old)
    new.type, new.shape = old.type, old.shape
    new.metadata_props.update(old.metadata_props)
    name, old.name = old.name, None
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name = name


def remove_dead(facts: Facts, nodes: Iterable[ir.Node], keep: Iterable[ir.Node] = ()) -> int:
    """Remove the given nodes and their producers as far as nothing uses them; returns how many went."""
    dead = _dead(facts, nodes, frozenset(keep))
    members: dict[ir.Graph | ir.Function, list[ir.Node]] = {}
    for node in dead:
        for body in bodies(node):
            for inside in body.all_nodes():
                _detach(inside, dead)  # a body that goes no longer reads the values of the scopes around it
        _detach(node, dead)
        if node.graph is not None:
            members.setdefault(node.graph, []).append(node)
    for graph, gone in members.items():
        graph.remove(gone)
    return len(dead)


def _dead(facts: Facts, nodes: Iterable[ir.Node], kept: Collection[ir.Node]) -> dict[ir.Node, None]:
    """Which of the nodes and their producers nothing uses; notes the initializers that they read."""
    dead: dict[ir.Node, None] = {}
    gone: set[ir.Node] = set()  # they, and the nodes of their bodies
    queue = list(nodes)
    while queue:
        node = queue.pop()
        if node in gone or node in kept or node.graph is None or _is_used(node, gone):
            continue
        dead[node] = None
        gone.add(node)
        operands = list(node.inputs)
        for body in bodies(node):
            gone.update(body.all_nodes())
            operands += _captured(body)
        for value in operands:
            producer = None if value is None else value.producer()
            if producer is not None:
                if producer not in gone:
                    queue.append(producer)
            elif value is not None and value.is_initializer():
                facts.orphans[value] = None
    return dead


def remove_orphans(facts: Facts) -> None:
    """Remove the initializers that lost their last reader to `remove_dead`.

    Looked at once for a whole model: an epsilon that a thousand sites share would else be looked at a
    thousand times, each time at all who read it.
    """
    for value in facts.orphans:
        remove_unused_initializer(value)
    facts.orphans.clear()


def remove_unused_initializer(value: ir.Value) -> None:
    """Remove an initializer that nothing uses, unless callers see it as an input."""
    graph = value.graph
    if graph is None or not value.is_initializer() or value.uses() or value.is_graph_output():
        return
    if value.is_graph_input() or value.name is None:
        return
    del graph.initializers[value.name]


def _is_used(node: ir.Node, gone: Collection[ir.Node]) -> bool:
    """Whether something else than nodes that go needs a result of a node."""
    for value in node.outputs:
        if value.is_graph_output():
            return True
        for use in value.uses():
            if use.node not in gone:
                return True
    return False


def _detach(node: ir.Node, dead: Collection[ir.Node]) -> None:
    """Let a node no longer read the values that stay; those that go with it need not be told."""
    for k, value in enumerate(node.inputs):
        if value is not None and value.producer() not in dead:
            node.replace_input_with(k, None)


def _captured(graph: ir.Graph) -> set[ir.Value]:
    """Values that a body reads from the scopes around it."""
    found: set[ir.Value] = set()
    own = {v for node in graph.all_nodes() for v in node.outputs} | set(graph.inputs)
    for node in graph.all_nodes():
        found |= {v for v in node.inputs if v is not None and v not in own}
    return found


def supersede(facts: Facts, old: ir.Value, new: ir.Value) -> None:
    """Let an existing value `new` stand wherever `old` stood, under the name of the old.

    Unlike `reroute` the name survives even where it is no output of the graph; nothing is removed.
    """
    _take_over(facts, old, new)


def displace(facts: Facts, old: ir.Value, new: ir.Value) -> int:
    """`supersede`, and then remove what computed `old`; returns how many nodes were removed."""
    producer = old.producer()
    supersede(facts, old, new)
    return 0 if producer is None else remove_dead(facts, [producer])


def rename(facts: Facts, value: ir.Value, wish: str) -> None:
    """A new name for a value that no longer holds what its name stood for."""
    value.name = facts.names.value(wish)


def set_constant(facts: Facts, node: ir.Node, index: int, array: np.ndarray[Any, Any], wish: str) -> int:
    """Let input `index` of `node` be `array`; returns by how many bytes the model has grown.

    An initializer that only this node reads keeps its name and gets the new numbers; any other constant
    stays as it is for its other readers, and a new initializer is made.
    """
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    old = node.inputs[index]
    shared = is_shared(old)
    if old is not None and old.is_initializer() and not shared and not facts.constants.is_overridable(old):
        before = 0 if old.const_value is None else old.const_value.nbytes
        tensor = ir.tensor(np.asarray(array, order="C"), name=old.name)
        old.const_value, old.shape = tensor, ir.Shape(array.shape)
        old.dtype = tensor.dtype
        facts.constants.forget(old)
        facts.shapes.set(old, array.shape, tensor.dtype)
        return int(tensor.nbytes - before)
    node.replace_input_with(index, add_constant(facts, array, wish))
    if old is None:
        return int(array.nbytes)
    producer = old.producer()
    if producer is not None:
        remove_dead(facts, [producer])
    else:
        remove_unused_initializer(old)
    return int(array.nbytes) if shared else 0


def is_shared(value: ir.Value | None) -> bool:
    """Whether more than one node needs a constant, or what it is computed from."""
    if value is None:
        return False
    if len(value.uses()) > 1 or value.is_graph_output():
        return True
    producer = value.producer()
    return producer is not None and any(is_shared(operand) for operand in producer.inputs)


def insert_behind(facts: Facts, value: ir.Value, node: ir.Node, wish: str) -> None:
    """Put `node`, which reads `value`, between it and all who read it.

    What `node` computes takes over the name of `value`, which gets a new one derived from `wish`.
    """
    producer = value.producer()
    if producer is None or producer.graph is None:
        raise ValueError(f"{value.name!r} is not computed by a node of a graph")
    output = node.outputs[0]
    positions = [k for k, operand in enumerate(node.inputs) if operand is value]
    for k in positions:
        node.replace_input_with(k, None)
    producer.graph.insert_after(producer, [node])
    _take_over(facts, value, output)
    for k in positions:
        node.replace_input_with(k, value)
    value.shape, value.type = output.shape, output.type
    rename(facts, value, wish)


def become_constant(facts: Facts, old: ir.Value, array: np.ndarray[Any, Any]) -> int:
    """Let an initializer of the same name stand wherever the computed value `old` stood.

    Returns how many nodes were removed. `old` must not be an output of its graph.
    """
    producer = old.producer()
    if producer is None or old.is_graph_output():
        raise ValueError(f"{old.name!r} is not computed by a node, or is an output")
    name, old.name = old.name, None
    new = add_constant(facts, array, f"{name}/constant")
    old.replace_all_uses_with(new)
    new.name = name
    return remove_dead(facts, [producer])
