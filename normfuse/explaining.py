"""One node of a model in full: the sites that it belongs to, and what it computes from every base value.

For who asks "why was this one not fused?". Nothing is run or written.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from normfuse import api
from normfuse.errors import UsageError, did_you_mean
from normfuse.graph.facts import Facts
from normfuse.norms.find import find
from normfuse.norms.reading import readings
from normfuse.options import Options
from normfuse.pipeline.given import Model, source_of
from normfuse.report.explanation import Explanation


def explain(model: Model, name: str, options: Options | None = None) -> Explanation:
    """What one node computes, and what became of it or why not.

    name: the name of a node, or of one of its outputs.
    Raises UsageError with the closest names where there is no such node, InputError for no valid model.
    """
    source = source_of(model)
    node = _node(source.model, name, source.name)
    facts = Facts(source.model)
    found = tuple(readings(facts, node))
    around = {norm.output.name for graph in facts.graphs() for norm in find(facts, graph).norms
              if node in norm.spelled}  # fmt: skip
    outputs = tuple(v.name for v in node.outputs if v.name)
    label, operator = node.name or outputs[0], node.op_type
    report = api.inspect(model, replace(options or Options(), skip=()))
    named = {label, *outputs} | around
    sites = tuple(site for site in report.sites if {site.anchor, site.output} & named)
    return Explanation(label, operator, outputs, sites, found)


def _node(model: ir.Model, name: str, where: str) -> ir.Node:
    known: dict[str, ir.Node] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for own in (node.name, *(value.name for value in node.outputs)):
            if own:
                known.setdefault(own, node)
    if name not in known:
        raise UsageError(f"{where} has no node {name!r}", hint=did_you_mean(name, known))
    return known[name]
