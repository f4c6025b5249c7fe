"""What counts as constant, and that a chain of constants is rounded as the model would round it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from small_models import f32, model

from normfuse.graph.constants import MAX_CHAIN
from normfuse.graph.facts import Facts


def facts_of(proto: onnx.ModelProto) -> tuple[Facts, dict[str, ir.Value]]:
    """The facts of a model and its values by name."""
    loaded = ir.from_proto(proto)
    values = {v.name: v for v in (*loaded.graph.inputs, *loaded.graph.initializers.values())}
    values |= {out.name: out for node in loaded.graph for out in node.outputs}
    return Facts(loaded), values


def constant(body: str, constants: dict[str, Any] | None = None, **options: Any) -> np.ndarray | None:
    """What is known of `c` in a model that computes it."""
    proto = model(body + " y = Identity(x)", constants, x="float[3]", **options)
    facts, values = facts_of(proto)
    return facts.constants.get(values["c"])


FORMS = {
    "value": ("c = Constant<value = float[2] {1.5, 2.5}>()", [1.5, 2.5], np.float32),
    "value_float": ("c = Constant<value_float=1.5>()", 1.5, np.float32),
    "value_floats": ("c = Constant<value_floats=[1.5, 2.5]>()", [1.5, 2.5], np.float32),
    "value_int": ("c = Constant<value_int=3>()", 3, np.int64),
    "value_ints": ("c = Constant<value_ints=[3, -1]>()", [3, -1], np.int64),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_numeric_form_of_constant_is_read(form):
    text, expected, dtype = FORMS[form]
    found = constant(text)
    assert found is not None
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.array(expected, dtype))


@pytest.mark.parametrize(
    "text", ['c = Constant<value_string="a">()', 'c = Constant<value_strings=["a", "b"]>()']
)
def test_strings_are_no_numbers(text):
    assert constant(text) is None


CHAINS = {
    "cast": ("c = Cast<to=1>(a)", np.array([1, 2]), f32(1, 2)),
    "unsqueeze": ("c = Unsqueeze(a, zero)", f32(1, 2), f32(1, 2)[None]),
    "one_plus": ("c = Add(a, a)", f32(1, 2), f32(2, 4)),
    "two_steps": ("b = Neg(a) c = Reciprocal(b)", f32(1, 2), f32(-1, -0.5)),
    "transposed": ("b = Unsqueeze(a, zero) c = Transpose(b)", f32(1, 2), f32(1, 2)[:, None]),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_short_chains_are_evaluated(chain):
    text, stored, expected = CHAINS[chain]
    constants = {"a": stored} | ({"zero": np.array([0])} if "zero" in text else {})
    np.testing.assert_array_equal(constant(text, constants), expected)


def test_a_chain_with_a_run_time_value_is_not_constant():
    assert constant("c = Add(a, x)", {"a": f32(1.0)}) is None


def test_a_chain_that_is_too_long_is_not_followed():
    steps = "".join(f"t{k} = Neg({'a' if k == 0 else f't{k - 1}'}) " for k in range(MAX_CHAIN + 5))
    assert constant(steps + f"c = Neg(t{MAX_CHAIN + 4})", {"a": f32(1.0)}) is None


def test_an_operator_that_refuses_its_operands_is_no_error():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) '
        "{ c = Reshape(a, s) y = Identity(x) }"
    )
    proto.graph.initializer.extend(
        [numpy_helper.from_array(f32(1, 2, 3), "a"), numpy_helper.from_array(np.array([2, 2]), "s")]
    )
    facts, values = facts_of(proto)
    assert facts.constants.get(values["c"]) is None


def test_a_constant_that_would_be_huge_is_not_made():
    assert constant("c = ConstantOfShape(s)", {"s": np.array([1 << 13, 1 << 13])}) is None


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_chains_round_in_the_type_that_the_model_states(dtype):
    weight = np.array([0.001, 0.3, -0.7], dtype)
    one = np.array(1, dtype)
    proto = model(
        "n = Add(w, one) c = Cast<to=1>(n) d = Cast<to=1>(w) e = Add(d, onef) y = Identity(x)",
        {"w": weight, "one": one, "onef": f32(1.0)},
        x="float[3]",
    )
    facts, values = facts_of(proto)
    np.testing.assert_array_equal(facts.constants.get(values["c"]), (weight + one).astype(np.float32))
    np.testing.assert_array_equal(facts.constants.get(values["e"]), weight.astype(np.float32) + np.float32(1))


@pytest.mark.parametrize(("ir_version", "known"), [(3, True), (4, False), (8, False)])
def test_an_initializer_that_is_an_input_is_constant_only_up_to_ir_3(ir_version, known):
    proto = model(
        "c = Neg(a) y = Identity(x)",
        {"a": f32(2.0)},
        x="float[3]",
        opset=8,
        ir_version=ir_version,
        overridable=["a"],
    )
    facts, values = facts_of(proto)
    assert facts.constants.is_known(values["a"]) == known
    assert (facts.constants.get(values["c"]) is not None) == known
    assert facts.constants.is_overridable(values["a"]) != known
    assert facts.constants.depends_on_overridable(values["c"]) != known


def test_what_also_depends_on_a_run_time_value_does_not_depend_on_the_override_alone():
    proto = model("c = Add(a, x) y = Identity(x)", {"a": f32(2.0)}, x="float[3]", overridable=["a"])
    facts, values = facts_of(proto)
    assert not facts.constants.depends_on_overridable(values["c"])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (f32(2.0), 2.0),
        (f32(2, 2, 2), 2.0),
        (f32(2, 3), None),
        (np.array(2), 2.0),
        (np.array([True]), None),
        (np.zeros(0, np.float32), None),
    ],
    ids=["scalar", "uniform", "mixed", "integer", "bool", "empty"],
)
def test_a_scalar_is_a_constant_whose_elements_are_all_the_same(array, expected):
    proto = model("y = Identity(x)", {"c": array}, x="float[3]")
    facts, values = facts_of(proto)
    assert facts.constants.scalar(values["c"]) == expected


def test_integers_come_from_constants_and_from_shapes():
    proto = model(
        "n = Shape(x) c = Concat<axis=0>(n, k) y = Identity(x)", {"k": np.array([7])}, x="float[A,4]"
    )
    facts, values = facts_of(proto)
    assert facts.integers(values["c"]) == ("A", 4, 7)
    assert facts.static_integers(values["c"]) is None
    assert facts.static_integers(values["k"]) == (7,)
    assert facts.integers(values["x"]) is None


def test_initializers_without_data_are_not_known():
    proto = model("y = Identity(x)", x="float[3]")
    facts, values = facts_of(proto)
    assert not facts.constants.is_known(values["x"])
    assert not facts.constants.is_known(None)
    assert facts.constants.get(None) is None


def test_the_type_of_a_string_initializer_does_no_harm():
    proto = model("y = Identity(x)", x="float[3]")
    proto.graph.initializer.append(helper.make_tensor("names", TensorProto.STRING, [1], [b"a"]))
    facts, values = facts_of(proto)
    assert facts.constants.get(values["names"]) is None
