"""Names for new values and nodes, unique over every scope of a model.

A new name is derived from what it stands for ("encoder/norm/scale"), never from an input of the site:
two sites that share an input would collide.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from normfuse.graph.scopes import graphs, inner


class Names:
    """All names of values and nodes of a model, its subgraphs and functions included.

    scopes: all graphs of the model, where they are at hand.
    """

    def __init__(self, model: ir.Model, scopes: Sequence[ir.Graph] = ()) -> None:
        self._values: set[str | None] = set()
        self._nodes: set[str | None] = set()
        every: list[ir.Graph | ir.Function] = [*(scopes or graphs(model))]
        for function in model.functions.values():
            every += [function, *inner(function)]
        for graph in every:
            self._add(graph)
        self._values -= {None, ""}
        self._nodes -= {None, ""}

    def _add(self, graph: ir.Graph | ir.Function) -> None:
        values, nodes = self._values, self._nodes
        values.update([value.name for value in graph.inputs])
        if isinstance(graph, ir.Graph):
            values.update(graph.initializers)
        for node in graph:
            nodes.add(node.name)
            for value in node.outputs:
                values.add(value.name)

    def value(self, wish: str) -> str:
        """A name for a new value: `wish`, or `wish_1`, `wish_2`, … where it is taken."""
        return _unique(wish, self._values)

    def node(self, wish: str) -> str:
        """A name for a new node, in the same way."""
        return _unique(wish, self._nodes)


def _unique(wish: str, taken: set[str | None]) -> str:
    name, k = wish, 0
    while name in taken:
        k += 1
        name = f"{wish}_{k}"
    taken.add(name)
    return name
