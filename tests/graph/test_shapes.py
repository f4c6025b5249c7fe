"""Inferred shapes are proofs: a number is that number, equal symbols are equal, whatever the sizes are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from small_models import f32, feeds, model, session

from normfuse.graph.shapes import Shapes, infer

Sizes = Mapping[str, int]


def ints(*values: int) -> np.ndarray:
    """An int64 vector."""
    return np.array(values, np.int64)


@dataclass
class Case:
    """A graph, and sizes of its symbols at which its inferred shapes must hold."""

    body: str
    inputs: dict[str, str]
    sizes: list[dict[str, int]]
    constants: dict[str, Any] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """The model; nothing is declared of its output y."""
        declared = ", ".join(f"{t} {n}" for n, t in self.inputs.items())
        proto = parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 18]> g ({declared}) => (float y) {{ {self.body} }}'
        )
        proto.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
        for name, value in self.constants.items():
            proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return proto


AB, X4, TWO = {"x": "float[A,4]", "z": "float[B,4]"}, {"x": "float[A,4]"}, {"x": "float[A,B,4]"}
UNEQUAL = [{"A": 1, "B": 3}, {"A": 3, "B": 1}, {"A": 2, "B": 2}]
LENGTHS = [{"A": 1}, {"A": 3}, {"A": 8}]
SIZE = "n = Shape(x) a = Gather(n, zero) "
ZERO = {"zero": ints(0)}
WEIGHT = {"w": np.ones((5, 3, 3, 3), np.float32)}

CASES: dict[str, Case] = {
    "broadcast_of_two_symbols": Case("y = Add(x, z)", AB, UNEQUAL),
    "broadcast_of_three": Case(
        "y = Max(x, z, w)", AB | {"w": "float[C,1]"}, [{"A": 1, "B": 1, "C": 3}, {"A": 1, "B": 3, "C": 1}]
    ),
    "where": Case(
        "y = Where(c, x, z)", AB | {"c": "bool[C,1]"}, [{"A": 1, "B": 3, "C": 1}, {"A": 1, "B": 1, "C": 3}]
    ),
    "mean_of_two": Case("y = Mean(x, z)", AB, UNEQUAL),
    "batches_of_products": Case(
        "y = MatMul(x, z)",
        {"x": "float[A,K,3]", "z": "float[B,3,N]"},
        [{"A": 1, "B": 3, "K": 1}, {"A": 3, "B": 1}],
    ),
    "slice_to_an_end": Case("y = Slice(x, zero, end, zero)", X4, LENGTHS, ZERO | {"end": ints(5)}),
    "slice_from_behind": Case(
        "y = Slice(x, start, end, zero)", X4, LENGTHS, ZERO | {"start": ints(-3), "end": ints(100)}
    ),
    "slice_without_the_last": Case(
        "y = Slice(x, zero, end, zero)", X4, LENGTHS[1:], ZERO | {"end": ints(-1)}
    ),
    "slice_with_a_step": Case(
        "y = Slice(x, zero, end, zero, two)", X4, LENGTHS, ZERO | {"end": ints(100), "two": ints(2)}
    ),
    "slice_backwards": Case(
        "y = Slice(x, end, far, zero, end)", X4, LENGTHS, ZERO | {"end": ints(-1), "far": ints(-100)}
    ),
    "slice_to_another_length": Case(
        "n = Shape(z) k = Slice(n, zero, one) y = Slice(x, zero, k, zero)",
        AB,
        UNEQUAL,
        ZERO | {"one": ints(1)},
    ),
    "concatenation": Case("y = Concat<axis=0>(x, z)", AB, UNEQUAL),
    "expand_to_a_constant": Case("y = Expand(x, t)", X4, LENGTHS[:2], {"t": ints(3, 4)}),
    "expand_to_another_shape": Case("t = Shape(z) y = Expand(x, t)", AB, UNEQUAL),
    "expand_by_ones": Case("y = Expand(x, t)", X4, LENGTHS, {"t": ints(1, 1)}),
    "reshape_with_zero_and_rest": Case("y = Reshape(x, t)", TWO, [{"A": 2, "B": 3}], {"t": ints(0, -1)}),
    "reshape_to_part_of_a_shape": Case(
        "n = Shape<start=1>(x) t = Concat<axis=0>(n, rest) y = Reshape(x, t)",
        TWO,
        [{"A": 2, "B": 3}],
        {"rest": ints(-1)},
    ),
    "halved_and_doubled": Case(
        SIZE + "b = Div(a, two) c = Mul(b, two) y = ConstantOfShape(c)", X4, LENGTHS, ZERO | {"two": ints(2)}
    ),
    "larger_of_two": Case(
        SIZE + "b = Max(a, two) y = ConstantOfShape(b)", X4, LENGTHS, ZERO | {"two": ints(2)}
    ),
    "absolute_difference": Case(
        SIZE + "b = Sub(a, seven) c = Abs(b) y = ConstantOfShape(c)", X4, LENGTHS, ZERO | {"seven": ints(7)}
    ),
    "remainder": Case(
        SIZE + "b = Mod(a, three) y = ConstantOfShape(b)", X4, LENGTHS, ZERO | {"three": ints(3)}
    ),
    "one_of_two_sizes": Case(
        SIZE + "q = Less(a, three) b = Where(q, three, a) y = ConstantOfShape(b)",
        X4,
        LENGTHS,
        ZERO | {"three": ints(3)},
    ),
    "narrowed_size": Case(
        SIZE + "b = Cast<to=2>(a) c = Cast<to=7>(b) y = ConstantOfShape(c)", X4, [{"A": 300}], ZERO
    ),
    "narrowed_static_size": Case(
        SIZE + "b = Cast<to=2>(a) c = Cast<to=7>(b) y = ConstantOfShape(c)", {"x": "float[300,4]"}, [{}], ZERO
    ),
    "size_as_a_truth": Case(
        SIZE + "b = Cast<to=9>(a) c = Cast<to=7>(b) y = ConstantOfShape(c)", {"x": "float[30,4]"}, [{}], ZERO
    ),
    "size_through_float": Case(
        SIZE + "b = Cast<to=1>(a) d = Mul(b, h) c = Cast<to=7>(d) y = ConstantOfShape(c)",
        X4,
        LENGTHS,
        ZERO | {"h": f32(1.5)},
    ),
    "product_of_sizes": Case(
        "n = Shape(x) a = ReduceProd<keepdims=0>(n) u = Unsqueeze(a, zero) y = Reshape(x, u)",
        TWO,
        [{"A": 2, "B": 3}],
        ZERO,
    ),
    "uneven_split": Case("y, b, c = Split<axis=0, num_outputs=3>(x)", {"x": "float[7,4]"}, [{}]),
    "split_of_a_symbol": Case("y, b = Split<axis=0, num_outputs=2>(x)", X4, [{"A": 5}, {"A": 4}]),
    "squeeze_of_whatever_is_1": Case("y = Squeeze(x)", {"x": "float[A,4,1]"}, [{"A": 1}, {"A": 2}]),
    "flatten": Case("y = Flatten<axis=2>(x)", TWO, [{"A": 2, "B": 3}]),
    "padded": Case("y = Pad(x, p)", X4, LENGTHS, {"p": ints(1, 0, -1, 2)}),
    "strided_convolution": Case(
        "y = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w)",
        {"x": "float[A,3,H,W]"},
        [{"A": 2, "H": 7, "W": 8}],
        WEIGHT,
    ),
    "pooling_rounded_up": Case(
        "y = MaxPool<kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>(x)",
        {"x": "float[1,3,7,8]"},
        [{}],
    ),
    "unique_rows": Case("y = Unique<axis=0>(x)", X4, [{"A": 2}]),
    "branches_of_two_sizes": Case(
        "y = If(c) <then_branch = t () => (float[M,4] a) { a = Identity(x) }, else_branch = e () "
        "=> (float[N,4] b) { b = Identity(z) }>",
        AB | {"c": "bool"},
        UNEQUAL,
    ),
    "branches_of_two_ranks": Case(
        "y = If(c) <then_branch = t () => (float[2,4] a) { a = Identity(x) }, else_branch = e () "
        "=> (float[4] b) { b = Identity(z) }>",
        {"x": "float[2,4]", "z": "float[4]", "c": "bool"},
        [{}],
    ),
    "a_loop_that_grows_its_state": Case(
        "y = Loop(k, , x) <body = b (int64 i, bool c, float[M,4] s) => (bool d, float[K,4] t) { d "
        "= Identity(c) t = Concat<axis=0>(s, s) }>",
        X4,
        [{"A": 2}],
        {"k": np.array(3)},
    ),
    "two_placeholders": Case("y = Concat<axis=0>(x, z)", {"x": "float[?,4]", "z": "float[?,4]"}, [{"?": 2}]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_inferred_holds(name):
    case = CASES[name]
    for sizes in case.sizes:
        assert_holds(case.model(), sizes)


def assert_holds(proto: onnx.ModelProto, sizes: Sizes) -> None:
    """Run the model with every value as an output, and hold what was inferred against what is."""
    loaded = ir.from_proto(proto)
    shapes = infer(loaded)
    inner = [out for node in loaded.graph for out in node.outputs if out.name]
    known = {out.name for out in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=v.name) for v in inner if v.name not in known)
    feed = next(feeds(proto, sizes))
    arrays = (
        dict(zip([o.name for o in proto.graph.output], session(proto).run(None, feed), strict=True)) | feed
    )
    bound: dict[str, int] = {}
    for value in (*loaded.graph.inputs, *inner):
        _assert_same(value, shapes.of(value), list(arrays[value.name].shape), bound)
        if arrays[value.name].dtype.kind in "iu":
            _assert_same(value, shapes.integers(value), arrays[value.name].reshape(-1).tolist(), bound)


def _assert_same(value: ir.Value, inferred: Any, actual: list[int], bound: dict[str, int]) -> None:
    if inferred is None:
        return
    assert len(inferred) == len(actual), f"{value.name}: {inferred}, but {actual}"
    for dim, size in zip(inferred, actual, strict=True):
        expected = bound.setdefault(dim, size) if isinstance(dim, str) else dim
        assert expected == size, f"{value.name}: {inferred}, but {actual}"


def shapes_of(body: str, constants: dict[str, Any] | None = None, **inputs: str) -> tuple[Shapes, ir.Model]:
    loaded = ir.from_proto(model(body, constants, outputs="float[M,N] y", **inputs))
    return infer(loaded), loaded


@pytest.mark.parametrize("name", ["?", "", "-1"])
def test_a_nameless_dimension_equals_no_other(name):
    dim = name if name == "?" else ""
    proto = Case("y = Identity(x)", {"x": "float[7,4]", "z": "float[7,4]"}, []).model()
    for value in proto.graph.input:
        first = value.type.tensor_type.shape.dim[0]
        first.Clear()
        if name == "-1":
            first.dim_value = -1
        elif dim:
            first.dim_param = dim
    loaded = ir.from_proto(proto)
    shapes = infer(loaded)
    x, z = (shapes.of(v) for v in loaded.graph.inputs)
    assert x[1] == z[1] == 4
    assert x[0] != z[0]


def test_a_symbol_is_the_same_wherever_it_stands():
    shapes, loaded = shapes_of("t = Transpose(x) y = Transpose(t)", x="float[A,B]")
    assert shapes.of(loaded.graph.outputs[0]) == shapes.of(loaded.graph.inputs[0]) == ("A", "B")


def test_an_expand_to_an_unknown_target_keeps_the_rank_and_what_is_above_1():
    shapes, loaded = shapes_of("t = Cast<to=7>(z) y = Expand(x, t)", x="float[1,4]", z="float[2]")
    first, second = shapes.of(loaded.graph.outputs[0])
    assert isinstance(first, str)
    assert second == 4


def test_an_unknown_stays_unknown():
    proto = Case("y = Reshape(x, z)", {"x": "float[A,4]", "z": "int64[R]"}, []).model()
    loaded = ir.from_proto(proto)
    assert infer(loaded).of(loaded.graph.outputs[0]) is None


def test_integers_are_known_through_shape_arithmetic():
    shapes, loaded = shapes_of(
        "n = Shape(x) a = Gather(n, one) b = Mul(a, two) c = Reshape(b, none) t = Cast<to=1>(c) y "
        "= Add(x, t)",
        {"one": ints(1), "two": ints(2), "none": ints(1)},
        x="float[A,6]",
    )
    known = {out.name: shapes.integers(out) for node in loaded.graph for out in node.outputs}
    assert known["n"] == ("A", 6)
    assert known["b"] == (12,)


@pytest.mark.parametrize("ir_version", [3, 8])
def test_an_overridable_target_shape_is_only_known_where_no_one_can_override_it(ir_version):
    proto = model(
        "y = Reshape(x, t)",
        {"t": ints(4, 2)},
        x="float[8]",
        outputs="float[M,N] y",
        overridable=["t"],
        ir_version=ir_version,
        opset=8,
    )
    loaded = ir.from_proto(proto)
    known = infer(loaded).of(loaded.graph.outputs[0])
    assert (known == (4, 2)) == (ir_version == 3)


def test_of_a_default_that_may_be_overridden_only_the_declared_shape_is_known():
    proto = model(
        "y = Add(x, b)",
        {"b": np.ones(3, np.float32)},
        x="float[4,N]",
        b="float[M]",
        outputs="float[4,K] y",
    )
    found = ir.from_proto(proto)
    assert [infer(found).of(value) for value in found.graph.inputs] == [(4, "N"), ("M",)]


@pytest.mark.parametrize("name", ["branches_of_two_sizes", "size_through_float", "slice_to_an_end"])
def test_inference_leaves_the_model_as_it_was(name):
    loaded = ir.from_proto(CASES[name].model())
    before = ir.to_proto(loaded).SerializeToString(deterministic=True)
    infer(loaded)
    assert ir.to_proto(loaded).SerializeToString(deterministic=True) == before


def test_what_a_file_claims_of_an_inner_value_is_not_believed():
    proto = Case("m = Relu(x) y = Neg(m)", {"x": "float[A,4]"}, []).model()
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, [7, 9]))
    loaded = ir.from_proto(proto)
    assert infer(loaded).of(loaded.graph.outputs[0]) == ("A", 4)


def test_what_a_file_claims_of_the_contents_of_integers_is_not_believed():
    """The key is the one under which the shape inference itself keeps them."""
    proto = Case("n = Identity(k) y = Reshape(x, n)", {"x": "float[A, 6]", "k": "int64[2]"}, []).model()
    claim = onnx.ValueInfoProto(name="n")
    claim.metadata_props.add(key="pkg.onnx_shape_inference.sym_data", value="[2, 3]")
    proto.graph.value_info.append(claim)
    loaded = ir.from_proto(proto)
    n = next(node.outputs[0] for node in loaded.graph if node.op_type == "Identity")
    assert n.metadata_props  # else this test says nothing
    assert infer(loaded).integers(n) is None
    assert n.metadata_props == {"pkg.onnx_shape_inference.sym_data": "[2, 3]"}
