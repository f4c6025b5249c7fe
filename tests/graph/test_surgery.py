"""Replacing a value keeps its name and its readers; only what became useless goes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from small_models import f32, interface, model

from normfuse.graph.facts import Facts
from normfuse.graph.surgery import (
    add_constant,
    displace,
    remove_dead,
    remove_orphans,
    remove_unused_initializer,
    replace,
    reroute,
)


def loaded(proto: onnx.ModelProto) -> tuple[Facts, dict[str, ir.Value]]:
    found = ir.from_proto(proto)
    values = {v.name: v for v in (*found.graph.inputs, *found.graph.initializers.values())}
    return Facts(found), values | {out.name: out for node in found.graph for out in node.outputs}


def swap(facts: Facts, old: ir.Value, x: ir.Value) -> int:
    """Let a Tanh of x stand for a value."""
    node = ir.node("Tanh", [x])
    node.outputs[0].name = facts.names.value("new")
    return replace(facts, old, [node], node.outputs[0])


def ops(facts: Facts) -> list[str]:
    return [node.op_type for node in facts.model.graph]


def finished(facts: Facts) -> onnx.ModelProto:
    """The model, checked."""
    proto = ir.to_proto(facts.model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def test_an_output_keeps_its_name_type_and_shape():
    proto = model("a = Neg(x) y = Abs(a)", x="float[B,4]", outputs="float[batch,4] y")
    facts, values = loaded(proto)
    assert swap(facts, values["y"], values["x"]) == 2
    assert ops(facts) == ["Tanh"]
    assert interface(finished(facts)) == interface(proto)


def test_dead_code_of_the_model_itself_stays():
    proto = model("dead = Sqrt(x) a = Neg(x) y = Abs(a)", x="float[4]")
    facts, values = loaded(proto)
    swap(facts, values["y"], values["x"])
    assert ops(facts) == ["Sqrt", "Tanh"]


def test_producers_with_another_reader_stay():
    proto = model(
        "a = Neg(x) b = Abs(a) y = Sqrt(b) z = Exp(a)", x="float[4]", outputs="float[4] y, float[4] z"
    )
    facts, values = loaded(proto)
    assert swap(facts, values["y"], values["x"]) == 2
    assert sorted(ops(facts)) == ["Exp", "Neg", "Tanh"]
    finished(facts)


def test_a_value_that_a_body_reads_stays_and_one_that_is_replaced_is_read_there():
    proto = model(
        "a = Neg(x) b = Abs(a) y = Sqrt(b) z = If(c) <then_branch = t () => (float[4] p) { p = Add(a, y) }, "
        "else_branch = e () => (float[4] q) { q = Neg(y) }>",
        x="float[4]",
        c="bool",
        outputs="float[4] y, float[4] z",
    )
    facts, values = loaded(proto)
    swap(facts, values["y"], values["x"])
    assert sorted(ops(facts)) == ["If", "Neg", "Tanh"]
    finished(facts)


def test_a_body_that_goes_lets_go_of_what_it_captured():
    proto = model(
        "a = Neg(x) b = If(c) <then_branch = t () => (float[4] p) { p = Abs(a) }, "
        "else_branch = e () => (float[4] q) { q = Exp(a) }> y = Sqrt(b)",
        x="float[4]",
        c="bool",
    )
    facts, values = loaded(proto)
    assert swap(facts, values["y"], values["x"]) == 3
    assert ops(facts) == ["Tanh"]


def test_initializers_go_with_their_last_reader():
    proto = model(
        "a = Add(x, one) y = Mul(a, shared) z = Add(x, shared)",
        {"one": f32(1.0), "shared": f32(2.0)},
        x="float[4]",
        outputs="float[4] y, float[4] z",
    )
    facts, values = loaded(proto)
    swap(facts, values["y"], values["x"])
    remove_orphans(facts)
    assert list(facts.model.graph.initializers) == ["shared"]


def test_an_initializer_that_callers_may_override_stays():
    proto = model("y = Add(x, one)", {"one": f32(1.0)}, x="float[4]", overridable=["one"])
    facts, values = loaded(proto)
    swap(facts, values["y"], values["x"])
    remove_orphans(facts)
    assert "one" in facts.model.graph.initializers
    assert interface(finished(facts)) == interface(proto)


@pytest.mark.parametrize("ir_version", [3, 8])
def test_a_new_constant_is_no_input(ir_version):
    proto = model("y = Add(x, one)", {"one": f32(1.0)}, x="float[4]", ir_version=ir_version, opset=8)
    facts, values = loaded(proto)
    before = list(facts.model.graph.inputs)
    constant = add_constant(facts, f32(1, 2, 3, 4), "two")
    node = ir.node("Mul", [values["x"], constant])
    replace(facts, values["y"], [node], node.outputs[0])
    assert list(facts.model.graph.inputs) == before


def test_a_new_constant_has_a_name_of_its_own_and_known_facts():
    facts, _ = loaded(model("y = Add(x, scale)", {"scale": f32(1.0)}, x="float[4]"))
    constant = add_constant(facts, np.ones((2, 3), np.float16), "scale")
    assert constant.name == "scale_1"
    assert facts.shapes.of(constant) == (2, 3)
    assert facts.shapes.dtype(constant) == ir.DataType.FLOAT16


@pytest.mark.parametrize("output", [True, False])
def test_an_existing_value_can_take_the_place_of_another(output):
    behind = "" if output else " z = Exp(y)"
    proto = model(
        "a = Neg(x) b = Abs(x) y = Sqrt(b)" + behind,
        x="float[4]",
        outputs="float[4] y" if output else "float[4] z",
    )
    facts, values = loaded(proto)
    assert reroute(facts, values["y"], values["a"]) == 2
    assert "Sqrt" not in ops(facts)
    assert interface(finished(facts)) == interface(proto)


def test_a_value_of_another_node_can_take_the_place_and_the_name_of_one_that_goes():
    facts, values = loaded(
        model(
            "a = Exp(x) b = Neg(a) c = Abs(x) y = Add(b, c)", x="float[4]", outputs="float[4] y, float[4] b"
        )
    )
    new = values["c"]
    assert displace(facts, values["b"], new) == 2
    assert ops(facts) == ["Abs", "Add"]
    assert new.name == "b"
    assert {v.name for v in finished(facts).graph.output} == {"y", "b"}


def test_only_computed_values_can_be_replaced():
    facts, values = loaded(model("y = Neg(x)", x="float[4]"))
    with pytest.raises(ValueError, match="'x' is not computed"):
        swap(facts, values["x"], values["y"])
    with pytest.raises(ValueError, match="'x' is not computed"):
        reroute(facts, values["x"], values["y"])


def test_what_is_used_is_not_removed():
    facts, values = loaded(model("a = Neg(x) y = Add(a, one)", {"one": f32(1.0)}, x="float[4]"))
    producer = values["a"].producer()
    assert producer is not None
    assert remove_dead(facts, [producer]) == 0
    remove_unused_initializer(values["one"])
    assert "one" in facts.model.graph.initializers


def test_a_new_constant_without_dimensions_has_none():
    facts = Facts(ir.from_proto(model("y = Neg(x)", x="float[2]")))
    value = add_constant(facts, np.array(1.5, np.float32), "c")
    assert value.const_value is not None
    assert value.const_value.numpy().shape == ()
