"""Asking each rule once comes to what the library comes to, and leaves the model as it was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnx_shape_inference import registry
from random_graphs import models

from normfuse.graph import by_library, inference_rules, remembered
from normfuse.graph.known import Known
from normfuse.graph.scopes import graphs
from normfuse.graph.shapes import infer

MADE_UP = re.compile(r"\b(unknown_|_d)\d+\b")
MODELS = sorted(Path(__file__).parents[2].joinpath("models").glob("*.onnx"))


def found_node_by_node(model: ir.Model) -> dict[ir.Value, Known] | None:
    """What is known after each rule was asked once; None where it is all left to the library."""
    inference_rules.register()
    before = str(ir.to_proto(model))
    found = remembered.infer(model, graphs(model))
    assert str(ir.to_proto(model)) == before
    if found is None:
        return None
    return by_library.go_on(model, found.known) if found.failed else dict(found.known)


def comparable(model: ir.Model, known: dict[ir.Value, Known]) -> list[tuple[Any, ...]]:
    """What is known of each value, with the names that inference makes up numbered as they come."""
    numbers: dict[str, str] = {}

    def numbered(dims: tuple[int | str, ...] | None) -> list[int | str] | None:
        if dims is None:
            return None
        return [
            d
            if isinstance(d, int)
            else MADE_UP.sub(lambda m: numbers.setdefault(m[0], f"#{len(numbers)}"), d)
            for d in dims
        ]

    return [
        (value.name, numbered(known[value].dims), known[value].dtype, numbered(known[value].integers))
        for graph in graphs(model)
        for value in values_of(graph)
    ]


def values_of(graph: ir.Graph) -> list[ir.Value]:
    """All values of one graph."""
    results = (value for node in graph for value in node.outputs)
    return [*graph.inputs, *graph.initializers.values(), *results]


def assert_the_same(proto: onnx.ModelProto) -> None:
    """Both ways come to the same, up to the names that they make up."""
    model = ir.from_proto(proto)
    found = found_node_by_node(model)
    if found is not None:
        assert comparable(model, found) == comparable(model, by_library.infer(model))


def twice(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with each node of the main graph a second time: there is something to remember."""
    doubled = onnx.ModelProto()
    doubled.CopyFrom(proto)
    made = {name for node in proto.graph.node for name in node.output if name}
    for node in proto.graph.node:
        again = doubled.graph.node.add()
        again.CopyFrom(node)
        for names in (again.input, again.output):
            names[:] = [f"{name}_again" if name in made else name for name in names]
    return doubled


def parsed(body: str, inputs: str, constants: dict[str, Any] | None = None) -> onnx.ModelProto:
    """A model with a result y of which nothing is declared; it need not be valid."""
    head = '<ir_version: 8, opset_import: ["": 18, "here": 1]>'
    proto = parser.parse_model(f"{head} g ({inputs}) => (y) {{ {body} }}")
    for name, array in (constants or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return proto


def claim(proto: onnx.ModelProto, name: str, element: int, dims: list[int | str]) -> onnx.ModelProto:
    """The model, stating this of a value."""
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info(name, element, dims))
    return proto


def shapes_of(proto: onnx.ModelProto) -> dict[str, tuple[int | str, ...] | None]:
    """The inferred shapes of the main graph by name."""
    model = ir.from_proto(proto)
    shapes = infer(model)
    return {value.name or "": shapes.of(value) for value in values_of(model.graph)}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_that_come_with_the_package(path: Path) -> None:
    assert_the_same(onnx.load(path))


@hypothesis.settings(max_examples=80)
@hypothesis.given(models())
def test_graphs_drawn_at_random(proto: onnx.ModelProto) -> None:
    assert_the_same(twice(proto))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_operator_of_onnx() -> None:
    from onnx.backend.test.case.node import collect_testcases

    protos = [case.model for case in collect_testcases(None) if case.model is not None]
    assert len(protos) > 1000
    for proto in protos:
        assert_the_same(twice(proto))


def test_a_rule_is_asked_once_for_the_same_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    rule_of = registry.get

    def watched(domain: str, op_type: str, version: int) -> Any:
        rule = rule_of(domain, op_type, version)
        return lambda context, node: (asked.append(node.name), rule(context, node))

    monkeypatch.setattr(registry, "get", watched)
    nodes = "[a] a = Erf(x) [b] b = Erf(a) [c] c = Transpose<perm=[1, 0]>(b) [d] d = Erf(c) [e] y = Erf(d)"
    shapes_of(parsed(nodes, "float[N,3] x"))
    assert asked == ["a", "c", "d"]


X = "float[N,3,4] x, float[3,N,4] z"
ONES = {n: np.ones(dims, np.float32) for n, dims in (("u", 3), ("v", (4, 5)), ("w", (2, 3)), ("one", 1))}
ODD = [np.where(np.arange(65) == k, 3, 1) for k in (0, 64)]
ALIKE: dict[str, tuple[str, dict[str, Any]]] = {
    "attributes": ("a = Transpose<perm=[0, 2, 1]>(x) y = Transpose<perm=[1, 0, 2]>(x)", {}),
    "elements": ("a = Reshape(x, s) y = Reshape(x, t)", {"s": [2, -1], "t": [3, -1]}),
    "elements_in_nodes": (
        """s = Constant<value = int64[2] {2, -1}>() t = Constant<value = int64[2] {-1, 3}>()
           q = Constant<value_ints = [4, -1]>() a = Reshape(x, s) b = Reshape(x, t) y = Reshape(x, q)""",
        {},
    ),
    "many_elements": ("a = Expand(one, s) y = Expand(one, t)", {"s": ODD[0], "t": ODD[1]}),
    "contents": ("s = Shape(x) t = Shape(z) a = Expand(one, t) b = Expand(one, s) y = Reshape(x, t)", {}),
    "contents_of_what_was_not_asked": ("s = Shape(x) t = Shape(x) y = Reshape(z, t)", {}),
    "domains": ("a = Relu(x) y = here.Relu(x)", {}),
    "products_of_control_flow": (
        """c = Constant<value = bool {1}>()
           i = If(c) <then_branch = t () => (k) { k = Relu(w) }, else_branch = e () => (l) { l = Abs(w) }>
           a = MatMul(i, v) b = Relu(w) d = MatMul(b, v) y = Shape(d)""",
        {},
    ),
    "what_a_rule_set_before_it_failed": ("a = Relu(w) b = Gemm(a, v) y = Relu(b)", {}),
    "operators_that_a_body_defines": ("y = GroupNormalization<num_groups = 3>(x, u, u)", {}),
}
"""Nodes that differ in one thing alone, and what else might be overlooked."""


@pytest.mark.parametrize(("body", "constants"), ALIKE.values(), ids=ALIKE)
def test_nodes_that_are_almost_alike(body: str, constants: dict[str, Any]) -> None:
    assert_the_same(parsed(body, X, ONES | constants))


def test_a_declared_type_is_part_of_what_is_remembered() -> None:
    proto = parsed("a = Relu(x) b = Relu(x) y = Relu(x)", X)
    assert_the_same(claim(proto, "b", onnx.TensorProto.DOUBLE, [3]))


def test_a_default_that_may_be_overridden_is_not_taken_for_a_constant_of_the_same_elements() -> None:
    proto = parsed("a = Reshape(x, s) y = Reshape(x, t)", f"{X}, int64[2] t", {"s": [3, 8], "t": [3, 8]})
    shapes = shapes_of(proto)
    assert shapes["a"] == (3, 8)
    assert [type(dim) for dim in shapes["y"] or ()] == [str, str]


def test_a_dimension_that_nothing_else_is_known_to_equal_is_never_used_twice() -> None:
    shapes = shapes_of(parsed("a = Add(x, z) y = Add(x, z)", "float[A,4] x, float[B,4] z"))
    assert len({shape[0] for shape in shapes.values() if shape}) == 4


def test_a_dimension_that_a_rule_leaves_without_a_name_gets_one_each_time() -> None:
    @registry.register("here", "Vague", since_version=1)
    def _(_: Any, node: ir.Node) -> None:
        node.outputs[0].shape = ir.Shape([None])

    shapes = shapes_of(parsed("a = here.Vague(x) y = here.Vague(x)", X))
    assert shapes["a"] != shapes["y"]


def test_a_name_in_the_file_is_not_made_up_again() -> None:
    shapes = shapes_of(parsed("a = NonZero(x) y = Add(x, z)", "float[_d0,unknown_0] x, float[_d1,M] z"))
    symbols = [d for shape in shapes.values() for d in shape or () if isinstance(d, str)]
    assert len(symbols) == len(set(symbols)) == 7


@pytest.mark.parametrize("imported", [True, False])
def test_a_name_that_is_claimed_late_is_not_made_up_before(imported: bool) -> None:
    proto = parsed("a = NonZero(x) b = here.Unheard(x) y = Relu(b)", X)
    if not imported:
        del proto.opset_import[1]
    shapes = shapes_of(claim(proto, "b", onnx.TensorProto.FLOAT, ["_d0"]))
    assert shapes["y"] == shapes["b"] == ("_d0",)
    assert shapes["a"] not in (None, (3, "_d0"))


def test_after_a_rule_has_failed_what_was_known_stays() -> None:
    proto = parsed("a = Relu(x) b = Concat<axis=0>(x, u) c = Relu(z) y = Relu(c)", X, ONES)
    shapes = shapes_of(proto)
    assert (shapes["a"], shapes["b"], shapes["c"]) == (("N", 3, 4), None, (3, "N", 4))


def test_names_made_up_before_and_after_a_failure_differ() -> None:
    loop = """l = Loop(n, c, x) <body = b (int64 i, bool go, float["?"] v) => (on, w)
                  { on = Identity(go) w = Relu(v) }>"""
    proto = parsed(
        f"{loop} f = Concat<axis = 5>(x, x) h = here.Unheard(x) y = Relu(h)", f"{X}, bool c, int64 n"
    )
    assert_the_same(claim(proto, "h", onnx.TensorProto.FLOAT, ["?"]))


def test_what_a_loop_carries_has_at_first_the_shape_that_it_is_given() -> None:
    loop = "y = Loop(n, c, x) <body = b (int64 i, bool go, v) => (on, w) { on = Identity(go) w = Relu(v) }>"
    proto = parsed(loop, f"{X}, bool c, int64 n")
    model = ir.from_proto(proto)
    shapes = infer(model)
    assert [shapes.of(output) for output in graphs(model)[1].outputs] == [(), ("N", 3, 4)]
    assert_the_same(proto)


FOR_THE_LIBRARY = {
    "scan": (
        """t, y = Scan<num_scan_inputs = 1, body = b (p, float[3,4] q) => (r, o)
               { r = Add(p, q) o = Identity(q) }>(one, x)""",
        ("N", 3, 4),
    ),
    "functions": ("y = here.twice(x)", ("N", 3, 4)),
}


@pytest.mark.parametrize(("body", "shape"), FOR_THE_LIBRARY.values(), ids=FOR_THE_LIBRARY)
def test_what_more_than_rules_are_needed_for_is_left_to_the_library(
    body: str, shape: tuple[Any, ...]
) -> None:
    proto = parsed(body, X, ONES)
    add = onnx.helper.make_node("Add", ["p", "p"], ["q"])
    imports = [onnx.helper.make_opsetid("", 18)]
    proto.functions.append(onnx.helper.make_function("here", "twice", ["p"], ["q"], [add], imports))
    assert found_node_by_node(ir.from_proto(proto)) is None
    assert shapes_of(proto)["y"] == shape
