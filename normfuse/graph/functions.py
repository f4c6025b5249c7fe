"""Model-local functions: those that may hold a normalization are inlined, the others stay.

A function's body has no shapes of its own, so nothing can be proved in it; at the place where it is called
there are.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

Holds = Callable[[ir.Node], bool]


def inlined(model: ir.Model, holds: Holds) -> ir.Model | None:
    """A copy in which every function with a node that `holds`, called directly or not, is inlined.

    Returns None when there is no such function.
    """
    wanted = _holding(model, holds)
    if not wanted:
        return None
    copy = model.clone()
    InlinePass(criteria=lambda function: function.identifier() in wanted)(copy)
    return copy


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
