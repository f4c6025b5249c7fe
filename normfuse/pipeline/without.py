"""A model without its norms: what it would be if they cost nothing. Its numbers are of no use, its time is.

before   x -> LayerNormalization -> y        x -> Transpose -> LayerNormalization -> Transpose -> y
after    x -> Identity -> y                  x -> Identity -> y
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from normfuse.parity.model import Model, names_read, subgraphs
from normfuse.parity.placement import FUSED
from normfuse.report.record import Site

SINGLE_OPERATORS = frozenset(name for name in FUSED if not name.startswith("Skip"))
"""Operators that are a normalization of their first input, which has the shape of their first output."""
_SUFFIX = "/without_norm"


def without_norms(result: Model, sites: Iterable[Site]) -> onnx.ModelProto:
    """A copy of the result in which every fused site, and every operator that is a norm, passes its input on.

    What only the norms read is gone. Weights in external files stay there.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(result.proto)
    ends = {site.output: site.input for site in sites if site.status == "fused" and site.input}
    _pass_on(proto.graph, ends)
    return proto


def _pass_on(graph: onnx.GraphProto, ends: Mapping[str, str]) -> None:
    outputs = {value.name for value in graph.output}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in subgraphs(node):
            _pass_on(body, ends)
        source = _source(node, ends)
        if source is None:
            nodes.append(node)
            continue
        passed = node.output[0]
        node.output[0] = f"{passed}{_SUFFIX}"
        nodes += [node, onnx.helper.make_node("Identity", [source], [passed])]
    kept = _needed(nodes, outputs)
    del graph.node[:]
    graph.node.extend(kept)


def _source(node: onnx.NodeProto, ends: Mapping[str, str]) -> str | None:
    """What a norm that ends at this node reads, or None where it is no norm."""
    if any(node.output[1:]) or not node.output:
        return None
    if node.output[0] in ends:
        return ends[node.output[0]]
    return node.input[0] if node.op_type in SINGLE_OPERATORS else None


def _needed(nodes: Sequence[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on, in their order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= names_read(node)
    return kept[::-1]
