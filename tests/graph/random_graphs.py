"""Graphs of a few layers, drawn at random: for shape inference alone, as many of them could not be run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
DIMS = st.sampled_from(["A", "B", "_d0", "unknown_0", "?", None, -1, 0, 1, 1, 3, 4, 12])
SHAPES = st.lists(DIMS, max_size=4)
INTEGERS = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 12]), min_size=1, max_size=4)
UNARY = ("Relu", "Sqrt", "Neg", "Identity", "Softmax", "Erf")
BINARY = ("Add", "Mul", "Div", "Pow", "Max", "Equal", "MatMul")

COUNTED: dict[str, dict[str, int]] = {
    **{name: {} for name in ("Add", "Mul", "Sub", "Div", "Max", "Where")},
    **{"Concat": {"axis": 0}, "Gather": {"axis": 0}, "Cast": {"to": INT64}, "ReduceProd": {"keepdims": 1}},
}


@dataclass
class Drawing:
    """A graph as it is drawn: its nodes, and the values that the next one may read."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    claims: list[onnx.ValueInfoProto] = field(default_factory=list)
    floats: list[str] = field(default_factory=list)
    integers: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    prefix: str = ""

    def any_of(self, names: Sequence[str]) -> str:
        """One of those."""
        return str(self.draw(st.sampled_from(names)))

    def name(self) -> str:
        """A name that nothing has yet."""
        return f"{self.prefix}v{len(self.nodes) + len(self.inputs) + len(self.initializers)}"

    def put(self, op_type: str, inputs: Sequence[str], results: int = 1, **attributes: Any) -> list[str]:
        """A node; at times with a claim about its results that may be wrong."""
        base = self.name()
        outputs = [f"{base}_{k}" for k in range(results)]
        self.nodes.append(helper.make_node(op_type, inputs, outputs, **attributes))
        if self.draw(st.integers(0, 5)) == 0:
            kind = self.any_of([FLOAT, INT64])  # type: ignore[list-item]
            self.claims.append(helper.make_tensor_value_info(outputs[0], int(kind), self.draw(SHAPES)))
        return outputs

    def constant(self, array: np.ndarray) -> str:
        """A constant, in one of the ways to have one: the last may be overridden."""
        tensor, name = numpy_helper.from_array(array), self.name()
        way = self.draw(st.integers(0, 3))
        if way == 0:
            return self.put("Constant", [], value=tensor)[0]
        if way == 1 and array.dtype == np.int64 and array.size:
            return self.put("Constant", [], value_ints=array.tolist())[0]
        tensor.name = name
        self.initializers.append(tensor)
        if way == 2 and not self.prefix:
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            self.inputs.append(helper.make_tensor_value_info(name, element, self.draw(st.none() | SHAPES)))
        return name

    def list_of_integers(self) -> str:
        """A vector of integers: computed before, or constant."""
        if self.integers and self.draw(st.booleans()):
            return self.any_of(self.integers)
        return self.constant(np.array(self.draw(INTEGERS), np.int64))

    def weight(self) -> str:
        """A small constant of floats."""
        dims = self.draw(st.sampled_from([(), (1,), (4,), (3, 4), (4, 4), (100,)]))
        return self.constant(np.full(dims, self.draw(st.sampled_from([0.5, 2.0])), np.float32))

    def graph(self, name: str, outputs: Sequence[str], count: int | None = None) -> onnx.GraphProto:
        """The graph as far as it is drawn."""
        results = [helper.make_empty_tensor_value_info(output) for output in outputs]
        return helper.make_graph(
            self.nodes, name, self.inputs[:count], results, self.initializers, value_info=self.claims
        )

    def body(self) -> Drawing:
        """A graph inside of this one, which sees its values."""
        return Drawing(
            self.draw,
            floats=list(self.floats),
            integers=list(self.integers),
            conditions=list(self.conditions),
            prefix=f"{self.name()}_",
        )


def layer(d: Drawing) -> None:
    """A few nodes more."""
    for _ in range(d.draw(st.integers(1, 6))):
        d.draw(st.sampled_from(STEPS))(d)


def _unary(d: Drawing) -> None:
    d.floats += d.put(d.any_of(UNARY), [d.any_of(d.floats)])


def _binary(d: Drawing) -> None:
    op_type = d.any_of(BINARY)
    other = d.weight() if d.draw(st.booleans()) else d.any_of(d.floats)
    results = d.put(op_type, [d.any_of(d.floats), other])
    (d.conditions if op_type == "Equal" else d.floats).extend(results)


def _reduced(d: Drawing) -> None:
    axes = d.draw(st.lists(st.integers(-2, 1), max_size=2))
    kept = d.draw(st.integers(0, 1))
    if d.draw(st.booleans()):
        d.floats += d.put(
            "ReduceSum", [d.any_of(d.floats), d.constant(np.array(axes, np.int64))], keepdims=kept
        )
    else:
        d.floats += d.put("ReduceMean", [d.any_of(d.floats)], axes=axes or None, keepdims=kept)


def _shaped(d: Drawing) -> None:
    op_type = d.any_of(("Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze"))
    d.floats += d.put(op_type, [d.any_of(d.floats), d.list_of_integers()])


def _turned(d: Drawing) -> None:
    perm = d.draw(st.sampled_from([None, [1, 0], [0, 2, 1], [0, 2, 1, 3]]))
    d.floats += d.put("Transpose", [d.any_of(d.floats)], **({} if perm is None else {"perm": perm}))


def _sliced(d: Drawing) -> None:
    start, end, axis = (d.list_of_integers() for _ in range(3))
    d.floats += d.put("Slice", [d.any_of(d.floats), start, end, axis])


def _split(d: Drawing) -> None:
    d.floats += d.put("Split", [d.any_of(d.floats)], 2, axis=d.draw(st.integers(-1, 1)))


def _joined(d: Drawing) -> None:
    d.floats += d.put("Concat", [d.any_of(d.floats), d.any_of(d.floats)], axis=d.draw(st.integers(-1, 1)))


def _shape_of(d: Drawing) -> None:
    d.integers += d.put("Shape", [d.any_of(d.floats)])


def _counted(d: Drawing) -> None:
    op_type = d.any_of(tuple(COUNTED))
    first, second = d.list_of_integers(), d.list_of_integers()
    inputs = [first] if op_type in ("Cast", "ReduceProd") else [first, second]
    if op_type == "Where":
        inputs.insert(0, d.put("Equal", inputs)[0])
    d.integers += d.put(op_type, inputs, **COUNTED[op_type])


def _found(d: Drawing) -> None:
    d.integers += d.put("NonZero", [d.any_of(d.floats)])


def _filled(d: Drawing) -> None:
    d.floats += d.put("ConstantOfShape", [d.list_of_integers()])


def _foreign(d: Drawing) -> None:
    results = d.put("Gelu", [d.any_of(d.floats)], domain="com.microsoft")
    results += d.put("Unheard", [d.any_of(d.floats)], domain=d.any_of(("here", "not.imported")))
    d.claims.append(helper.make_tensor_value_info(results[-1], FLOAT, d.draw(SHAPES)))
    d.floats += results


def _if(d: Drawing) -> None:
    branches = []
    for name in ("then_branch", "else_branch"):
        body = d.body()
        layer(body)
        branches.append((name, body.graph(name, body.put("Identity", [body.floats[-1]]))))
    condition = d.any_of(d.conditions) if d.conditions else d.constant(np.array(True))
    d.floats += d.put("If", [condition], **dict(branches))


def _loop(d: Drawing) -> None:
    body = d.body()
    carried = f"{body.prefix}x"
    body.inputs += [
        helper.make_tensor_value_info(f"{body.prefix}i", INT64, []),
        helper.make_tensor_value_info(f"{body.prefix}c", BOOL, []),
        helper.make_tensor_value_info(carried, FLOAT, d.draw(SHAPES))
        if d.draw(st.booleans())
        else helper.make_empty_tensor_value_info(carried),
    ]
    body.floats.append(carried)
    layer(body)
    read = (f"{body.prefix}c", body.floats[-1], d.any_of(body.floats))
    outputs = [body.put("Identity", [name])[0] for name in read]
    count, condition = d.list_of_integers(), d.constant(np.array(True))
    d.floats += d.put("Loop", [count, condition, d.any_of(d.floats)], 2, body=body.graph("body", outputs))


STEPS = (
    *(_unary, _unary, _binary, _binary, _binary, _reduced, _shaped, _shaped, _turned, _sliced, _split),
    *(_joined, _shape_of, _shape_of, _counted, _counted, _found, _filled, _foreign, _if, _loop),
)


@st.composite
def models(draw: Callable[[st.SearchStrategy[Any]], Any]) -> onnx.ModelProto:
    """A model; the shapes of some of its inputs are those of others."""
    d = Drawing(draw)
    for k, dims in enumerate(draw(st.lists(SHAPES, min_size=2, max_size=3))):
        d.inputs.append(helper.make_tensor_value_info(f"x{k}", FLOAT, dims))
        d.floats.append(f"x{k}")
    d.inputs.append(helper.make_tensor_value_info("n", INT64, [draw(st.sampled_from([2, 3, "N"]))]))
    d.integers.append("n")
    for _ in range(draw(st.integers(1, 4))):
        layer(d)
    imports = [("", 17), ("com.microsoft", 1), ("here", 1)]
    return helper.make_model(
        d.graph("g", [d.floats[-1]]),
        opset_imports=[helper.make_opsetid(*pair) for pair in imports],
        ir_version=draw(st.sampled_from([3, 8])),
    )
