"""Only the functions that hold what is looked for are inlined, and those that call them."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import parser
from small_models import assert_agree

from normfuse.graph.functions import inlined

TEXT = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[3] x) => (float[3] y) { a = local.outer(x)  y = local.other(a) }
<domain: "local", opset_import: ["" : 17, "local" : 1]>
outer (p) => (q) { r = local.inner(p)  q = Neg(r) }
<domain: "local", opset_import: ["" : 17]>
inner (p) => (q) { q = Sqrt(p) }
<domain: "local", opset_import: ["" : 17]>
other (p) => (q) { q = Abs(p) }
"""


def inline(op_type: str) -> onnx.ModelProto | None:
    """The model with the functions inlined that hold an operator."""
    found = inlined(ir.from_proto(parser.parse_model(TEXT)), lambda node: node.op_type == op_type)
    return None if found is None else ir.to_proto(found)


def test_a_function_that_is_called_by_another_is_inlined_with_it():
    proto = inline("Sqrt")
    assert proto is not None
    assert [n.op_type for n in proto.graph.node] == ["Sqrt", "Neg", "other"]
    assert [f.name for f in proto.functions] == ["other"]
    assert_agree(parser.parse_model(TEXT), proto)


def test_without_such_a_function_nothing_is_copied():
    assert inline("Tanh") is None


def test_the_model_itself_keeps_its_functions():
    loaded = ir.from_proto(parser.parse_model(TEXT))
    inlined(loaded, lambda node: node.op_type == "Sqrt")
    assert len(loaded.functions) == 3
