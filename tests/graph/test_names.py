"""New names are free in every scope of the model."""

from __future__ import annotations

import onnx_ir as ir
from onnx import parser

from normfuse.graph.names import Names

TEXT = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[3] x, bool c) => (float[3] y) <float[3] weight = {1, 2, 3}>
{
    [first] a = Neg(x)
    b = If(c) <
        then_branch = t () => (float[3] inner) <float[3] held = {1, 2, 3}> { [second] inner = Add(a, held) },
        else_branch = e () => (float[3] other) { other = Abs(a) }
    >
    y = local.twice(b)
}
<domain: "local", opset_import: ["" : 17]>
twice (p) => (q) { [third] hidden = Identity(p)  q = Add(hidden, hidden) }
"""


def names() -> Names:
    return Names(ir.from_proto(parser.parse_model(TEXT)))


def test_a_free_name_is_given_as_it_is_wished():
    assert names().value("norm/scale") == "norm/scale"
    assert names().node("norm/scale") == "norm/scale"


def test_names_of_every_scope_are_taken():
    for taken in ("x", "y", "a", "weight", "inner", "held", "other", "hidden", "p", "q"):
        assert names().value(taken) == f"{taken}_1"
    for taken in ("first", "second", "third"):
        assert names().node(taken) == f"{taken}_1"


def test_a_given_name_is_taken_from_then_on():
    given = names()
    assert [given.value("s") for _ in range(3)] == ["s", "s_1", "s_2"]


def test_values_and_nodes_have_names_of_their_own():
    given = names()
    assert given.node("a") == "a"
    assert given.value("first") == "first"
