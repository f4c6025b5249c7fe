"""Model-local functions: those that may hold a normalization are inlined, the others stay.

A function's body has no shapes of its own, so nothing can be proved in it; at the place where it is called
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

Holds = Callable[[ir.Node], bool]
MAX_NODES = 1_000_000


def inlined(model: ir.Model, holds: Holds) -> ir.Model | None:
    """A copy in which every function with a node that `holds`, called directly or not, is inlined.

    Returns None when there is no such function, or when that would make a model of more than `MAX_NODES`.
    """
    wanted = _holding(model, holds)
    if not wanted or _inlined_nodes(model, wanted) > MAX_NODES:
        return None
    from onnx_ir.passes.common import InlinePass

    copy = model.clone()
    InlinePass(criteria=lambda function: function.identifier() in wanted)(copy)
    return copy


def _inlined_nodes(model: ir.Model, wanted: set[ir.OperatorIdentifier]) -> int:
    """How many nodes there would be: functions that call functions can grow without bounds."""
    sizes: dict[ir.OperatorIdentifier, int] = {}

    def size(key: ir.OperatorIdentifier) -> int:
        if key not in sizes:
            sizes[key] = total(model.functions[key].all_nodes())
        return sizes[key]

    def total(nodes: Iterable[ir.Node]) -> int:
        return sum(size(n.op_identifier()) if n.op_identifier() in wanted else 1 for n in nodes)

    return total(model.graph.all_nodes())


def _holding(model: ir.Model, holds: Holds) -> set[ir.OperatorIdentifier]:
    """Functions that hold such a node, or call one that does."""
    wanted = {key for key, f in model.functions.items() if any(holds(n) for n in f.all_nodes())}
    while True:
        callers = {
            key
            for key, f in model.functions.items()
            if key not in wanted and any(n.op_identifier() in wanted for n in f.all_nodes())
        }
        if not callers:
            return wanted
        wanted |= callers
