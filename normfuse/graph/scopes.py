"""Every graph of a model: the main one, and the bodies of If, Loop and Scan in it, at any depth.

onnx-ir has iterators for this, which cost several times as much; on a model of 100,000 nodes that shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The graphs that a node holds in its attributes."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if (kind is not _GRAPH and kind is not _GRAPHS) or attribute.is_ref():
            continue
        found.extend([attribute.as_graph()] if kind is _GRAPH else attribute.as_graphs())
    return found


def graphs(model: ir.Model) -> list[ir.Graph]:
    """The main graph of a model and all bodies in it, each before those inside of it; not its functions."""
    return [model.graph, *inner(model.graph)]


def inner(graph: ir.Graph | ir.Function) -> Iterator[ir.Graph]:
    """The bodies in a graph, at any depth, each before those inside of it."""
    for node in graph:
        if node.attributes.data:
            for body in bodies(node):
                yield body
                yield from inner(body)


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of the main graph and of all bodies in it."""
    for graph in graphs(model):
        yield from graph
