"""Names for new values and nodes, unique over every scope of a model.

A new name is derived from what it stands for ("encoder/norm/scale"), never from an input of the site:
two sites that share an input would collide.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from normfuse.graph.scopes import graphs, inner


class Names:
    """All names of values and nodes of a model, its subgraphs and functions included."""

    def __init__(self, model: ir.Model) -> None:
        self._values: set[str] = set()
        self._nodes: set[str] = set()
        every: list[ir.Graph | ir.Function] = [*graphs(model)]
        for function in model.functions.values():
            every += [function, *inner(function)]
        for graph in every:
            self._add(v.name for v in graph.inputs)
            if isinstance(graph, ir.Graph):
                self._add(graph.initializers)
            for node in graph:
                self._add(v.name for v in node.outputs)
                if node.name:
                    self._nodes.add(node.name)

    def _add(self, names: Iterable[str | None]) -> None:
        self._values.update(name for name in names if name)

    def value(self, wish: str) -> str:
        """A name for a new value: `wish`, or `wish_1`, `wish_2`, … where it is taken."""
        return _unique(wish, self._values)

    def node(self, wish: str) -> str:
        """A name for a new node, in the same way."""
        return _unique(wish, self._nodes)


def _unique(wish: str, taken: set[str]) -> str:
    name, k = wish, 0
    while name in taken:
        k += 1
        name = f"{wish}_{k}"
    taken.add(name)
    return name
