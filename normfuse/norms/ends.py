"""Where a site ends: which of the values that are normalizations of the base are worth a fused node.

Every value of a walk that has the form is a possible end: x/std, that times gamma, that plus beta. An end
is *covered* when everything that reads it leads to a further end, so it need not exist. What is not covered
must: the last value of a chain, or an inner one that is used elsewhere as well; from there on the rest of
the chain stays as it is. Two chains that part behind one statistic (GPT-NeoX has two LayerNorms on one
tensor) are two ends.

A value inside that is used outside keeps its producers; then the work must still shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import onnx_ir as ir

from normfuse.algebra.operators import REDUCTIONS
from normfuse.algebra.walk import Walk
from normfuse.norms.families import spelled_nodes
from normfuse.norms.norm import Norm

_SHAPES = frozenset({"Shape", "Size"})
_SHAPE_ARITHMETIC = frozenset(
    (
        *("Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Range", "ReduceProd", "Reshape"),
        *("Slice", "Squeeze", "Sub", "Unsqueeze"),
    )
)
_MAX_SHAPE_CHAIN = 10


def choose(found: Walk, norm_of: Callable[[ir.Value], Norm | None]) -> dict[ir.Value, Norm]:
    """The ends, among the values that are normalizations, that must exist, in graph order.

    norm_of: what a value is. It is not asked of the values that are covered.
    """
    leads: set[ir.Value] = set()  # values that are ends, or that are only used on the way to one
    needed: list[tuple[ir.Value, Norm]] = []
    for value in reversed(found.traced):
        if _is_covered(value, leads):
            leads.add(value)
            continue
        norm = norm_of(value)
        if norm is not None and not _reduces_an_end(found, norm, norm_of):
            leads.add(value)
            needed.append((value, norm))
    chosen: dict[ir.Value, Norm] = {}
    for value, norm in reversed(needed):
        if not chosen or _reads_base(found, value, frozenset(chosen)):
            chosen[value] = norm
    return chosen


def _reduces_an_end(found: Walk, norm: Norm, norm_of: Callable[[ir.Value], Norm | None]) -> bool:
    """Whether an end is the start of a further norm: n - mean(n) of a normalized n is n itself."""
    source = found.source or found.base
    nodes = norm.spelled if norm.input is source else spelled_nodes(found, norm.output, source)
    reduced = (v for n in nodes if n.op_type in REDUCTIONS for v in n.inputs if v is not None)
    return any(norm_of(value) is not None for value in reduced)


def _is_covered(value: ir.Value, leads: Collection[ir.Value]) -> bool:
    uses = value.uses()
    return bool(uses) and not value.is_graph_output() and all(u.node.outputs[0] in leads for u in uses)


def _reads_base(found: Walk, end: ir.Value, chosen: frozenset[ir.Value]) -> bool:
    """Whether `end` needs the base even when the chosen ends are given."""
    nodes = spelled_nodes(found, end, found.base, chosen - {end})
    return any(v in (found.base, found.source) for node in nodes for v in node.inputs if v is not None)


def escaping(ends: Collection[ir.Value], spelled: Iterable[ir.Node]) -> set[ir.Node]:
    """Nodes of a site that must stay because something outside of it reads them."""
    nodes = list(spelled)
    dead: set[ir.Node] = set()
    for node in reversed(nodes):
        first, *others = node.outputs
        if first in ends or (
            not first.is_graph_output()
            and all(use.node in dead or _goes(use.node, dead) for use in first.uses())
            and not any(out.uses() or out.is_graph_output() for out in others)
        ):
            dead.add(node)
    return set(nodes) - dead


def _goes(node: ir.Node, dead: Collection[ir.Node], depth: int = 0) -> bool:
    """Whether a reader goes with the site: it is part of it, or only computes shapes for what is."""
    if node in dead:
        return True
    if depth > _MAX_SHAPE_CHAIN or node.op_type not in (_SHAPES if depth == 0 else _SHAPE_ARITHMETIC):
        return False
    if any(out.is_graph_output() for out in node.outputs):
        return False
    return all(_goes(c, dead, depth + 1) for out in node.outputs for c in out.consumers())


def is_worth_it(
    found: Walk, ends: Collection[ir.Value], spelled: Collection[ir.Node], kept: Collection[ir.Node]
) -> bool:
    """Whether fused nodes do less work than the nodes that they make superfluous.

    Work is counted in passes over the full tensor: a fused norm costs about as much as the reductions that
    it saves, so the passes that go must outnumber those that stay.
    """
    if not kept:
        return len(spelled) > len(ends) and any(_is_pass(found, n) for n in spelled)
    gone = [n for n in spelled if n not in kept]
    passes_gone = sum(_is_pass(found, n) for n in gone)
    passes_kept = sum(_is_pass(found, n) for n in kept)
    return len(gone) > len(ends) and passes_gone > passes_kept


def _is_pass(found: Walk, node: ir.Node) -> bool:
    every = set(range(len(found.frame.sizes)))
    operands = [v for v in (*node.inputs, node.outputs[0]) if v is not None and v in found.traced]
    return any(every <= {a for group in found.traced[v].layout for a in group} for v in operands)
