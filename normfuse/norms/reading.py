"""What a node computes, read from every base value that determines it, and what that is short of a norm.

node 'y' = x*(mean[-1](x^2) + 1e-05)^(-1/2), where x is 'h'        RMSNorm
node 'y' = x*(mean[-1](x^2)^(1/2) + 1e-05)^(-1), where x is 'h'    RMSNorm, but eps-outside-sqrt
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from normfuse.algebra.notation import written
from normfuse.algebra.walk import Order, Walk, node_order, walk
from normfuse.graph.facts import Facts
from normfuse.norms.candidates import bases
from normfuse.norms.families import classify
from normfuse.norms.forms import Form, recognise
from normfuse.norms.norm import Norm
from normfuse.norms.refusal import REASONS


@dataclass(frozen=True)
class Reading:
    """What a node was found to compute, from one base value.

    base: the name of the value that is called x. polynomial: as `algebra.notation` writes it, or "" where the
        walk ended at the node.
    kind: the norm that it is, or nearly is. reason: a code of `REASONS` for what it is short of, else None.
    detail: what exactly was found.
    """

    base: str
    polynomial: str
    kind: str | None = None
    reason: str | None = None
    detail: str = ""


def readings(facts: Facts, node: ir.Node) -> list[Reading]:
    """Everything that is known of the first output of a node; empty where no reduction leads to it."""
    graph = node.graph
    if not isinstance(graph, ir.Graph) or not node.outputs:
        return []
    order = node_order(graph)
    found = [_read(facts, walked, node) for walked in _walks(facts, graph, order)]
    return [reading for reading in found if reading is not None]


def _walks(facts: Facts, graph: ir.Graph, order: Order) -> Iterator[Walk]:
    for base in dict.fromkeys(_bases(facts, graph)):
        found = walk(facts, base, order)
        if found is not None:
            yield found


def _bases(facts: Facts, graph: ir.Graph) -> Iterable[ir.Value]:
    for _, values in bases(facts, graph):
        yield from values


def _read(facts: Facts, found: Walk, node: ir.Node) -> Reading | None:
    """What a walk has to say of a node, or None where it is of no interest."""
    output, base = node.outputs[0], found.base.name or ""
    if output is found.base:
        return None
    traced = found.traced.get(output)
    if traced is None:
        return next(
            (Reading(base, "", None, e.reason, e.detail) for e in found.endings if e.node is node), None
        )
    text = written(found.frame, traced.polynomial)
    verdict = recognise(found.frame, traced.polynomial)
    if verdict is None:
        return Reading(base, text)
    judged = classify(facts, found, output, verdict) if isinstance(verdict, Form) else verdict
    if isinstance(judged, Norm):
        return Reading(base, text, judged.kind, detail=_figures(judged))
    if judged.reason not in REASONS:  # a root of a mean, as it stands in every norm
        return Reading(base, text)
    return Reading(base, text, judged.kind, judged.reason, judged.detail)


def _figures(norm: Norm) -> str:
    axes = ", ".join(str(k - len(norm.shape)) for k in norm.axes)
    epsilon = f"epsilon {norm.epsilon:.9g}"
    if norm.deviation_epsilon:
        epsilon += f", and {norm.deviation_epsilon:.9g} beside the deviation"
    return f"over {'axis' if len(norm.axes) == 1 else 'axes'} {axes}, {epsilon}"
