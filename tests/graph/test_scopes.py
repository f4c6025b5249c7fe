"""Every graph of a model is found, bodies inside of bodies included, in the order of the file."""

from __future__ import annotations

import hostile
import onnx
import onnx_ir as ir

from normfuse.graph.scopes import graphs, nodes


def test_bodies_are_found_at_any_depth_and_in_order() -> None:
    model = ir.from_proto(onnx.load_from_string(hostile.nested_if(3)))
    assert [graph.name for graph in graphs(model)] == [
        model.graph.name,
        *(graph.name for graph in model.graph.subgraphs()),
    ]
    assert len(graphs(model)) == 7
    assert list(nodes(model)) == [node for graph in graphs(model) for node in graph]
