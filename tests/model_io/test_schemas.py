"""Nodes that their operator does not allow are refused; those that it allows are not."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from normfuse.errors import InputError
from normfuse.model_io.schemas import InvalidNode, Operators, check_node, opset_versions


def node(text: str) -> onnx.NodeProto:
    """One node, from its ONNX text."""
    graph = onnx.parser.parse_graph(f"g (float x, float z) => (float y) {{ {text} }}")
    return graph.node[0]


def check(operators: Operators, given: onnx.NodeProto) -> None:
    attributes = tuple((attribute.name, attribute.type) for attribute in given.attribute)
    operators.check(given, given.input[:], given.output[:], attributes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y = Add(x)", "has 1 input, and the operator takes 2"),
        ("y = Sqrt(x, z)", "has 2 inputs, and the operator takes 1"),
        ("y, z1 = Add(x, z)", "has 2 outputs, and the operator takes 1"),
        ("y = Pow(, x)", "lacks its input 0"),
        ("y = ReduceMean<axes = 1.0>(x)", "an attribute 'axes' of type FLOAT, not INTS"),
        ("y = ReduceMean<keepdims = [1]>(x)", "an attribute 'keepdims' of type INTS, not INT"),
        ("y = Concat(x, z)", "lacks its attribute 'axis'"),
        ("y = LayerNormalization(x)", "has 1 input, and the operator takes 2 to 3"),
    ],
)
def test_what_no_operator_allows_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidNode, match=message):
        check_node(node(text), {"": 13})


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("y = Add(x, z)", 13),
        ("y = Clip(x, , z)", 13),
        ("y = Conv(x, z, )", 13),
        ("y, a, b, c, d = BatchNormalization(x, z, z, z, z)", 9),
        ("y = ReduceMean(x, z)", 18),
        ("y = LayerNormalization<axis = -1, epsilon = 1e-5>(x, z)", 13),
        ("y = Sum(x, z, x, z, x)", 13),
        ("y = Frobnicate<k = 1.0>(x)", 13),
        ("y = Sqrt(x, z)", 10_000),  # an operator set that onnx does not know yet may allow it
    ],
)
def test_what_an_operator_allows_is_not(text: str, opset: int) -> None:
    check_node(node(text), {"": opset})


@pytest.mark.parametrize(
    ("before", "text", "message"),
    [
        ("y = Pow(x, z)", "y = Pow(, z)", "lacks its input 0"),
        ("y = Add(x, z)", "y = Add(x)", "has 1 input"),
        ("y = Sqrt(x)", "y, z1 = Sqrt(x)", "has 2 outputs"),
        ("y = ReduceMean<axes = [1]>(x)", "y = ReduceMean<axes = 1.0>(x)", "'axes' of type FLOAT, not INTS"),
        ("y = Concat<axis = 1>(x, z)", "y = Concat(x, z)", "lacks its attribute 'axis'"),
        ("y = Concat<axis = 1>(x, z)", "y = Add<axis = 1>(x, z, x)", "has 3 inputs"),
    ],
)
def test_a_node_is_refused_that_is_nearly_like_one_which_was_allowed(
    before: str, text: str, message: str
) -> None:
    operators = Operators({"": 13})
    check(operators, node(before))
    check(operators, node(before))
    with pytest.raises(InvalidNode, match=message):
        check(operators, node(text))


def test_custom_operators_are_not_looked_into() -> None:
    check_node(helper.make_node("Add", [], ["y"], domain="my.own", k=1.0), {"": 13, "my.own": 1})


def test_an_attribute_without_a_type_is_refused_wherever_it_stands() -> None:
    odd = helper.make_node("Any", [], ["y"], domain="my.own", k=1.0)
    odd.attribute[0].ClearField("type")
    with pytest.raises(InvalidNode, match="'k' whose type is not said"):
        check_node(odd, {"": 13})


@pytest.mark.parametrize("version", [0, -1, 2**31, 2**62])
def test_what_is_no_version_is_refused(version: int) -> None:
    with pytest.raises(InputError, match=f"{version} is no version"):
        opset_versions([onnx.OperatorSetIdProto(version=version)], "m.onnx")


def test_both_names_of_the_standard_domain_are_one() -> None:
    ids = [helper.make_opsetid("ai.onnx", 17), helper.make_opsetid("my.own", 3)]
    assert opset_versions(ids, "m.onnx") == {"": 17, "my.own": 3}
