"""Small files with a large effect: what a few bytes can ask of memory and time.

Each is a builder of `onnx.ModelProto`; a LayerNorm stands beside it, which is to be fused all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from hostile import layer_norm
from onnx import TensorProto, helper, numpy_helper

SCALED = 7  # the node that multiplies with gamma


def with_scale(nodes: list[onnx.NodeProto], value: str, **constants: np.ndarray) -> onnx.ModelProto:
    """A LayerNorm whose scale is computed from constants."""
    model = layer_norm()
    model.graph.node[SCALED].input[1] = value
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    return model


def outer(op_type: str, size: int) -> onnx.ModelProto:
    """A column and a row, which an operator makes a square of."""
    column, row = np.ones((size, 1), np.float32), np.ones((1, size), np.float32)
    return with_scale([helper.make_node(op_type, ["col", "row"], ["wide"])], "wide", col=column, row=row)


def gathered(size: int) -> onnx.ModelProto:
    """One long row, as often as it is long."""
    row, rows = np.ones((1, size), np.float32), np.zeros(size, np.int64)
    return with_scale([helper.make_node("Gather", ["row", "rows"], ["wide"])], "wide", row=row, rows=rows)


def weight_product(size: int) -> onnx.ModelProto:
    """A weight that is normalized, and the product of a column and a row."""
    nodes = [
        helper.make_node("MatMul", ["col", "row"], ["product"]),
        helper.make_node("ReduceMean", ["product"], ["mean"], axes=[-1]),
        helper.make_node("Div", ["product", "mean"], ["wide"]),
    ]
    column, row = np.ones((size, 1), np.float32), np.ones((1, size), np.float32)
    return with_scale(nodes, "wide", col=column, row=row)


def doubled(levels: int) -> onnx.ModelProto:
    """An overridable scale, added to itself again and again: as many paths as 2 to the levels."""
    nodes = [
        helper.make_node("Add", [f"twice{k}" if k else "gamma"] * 2, [f"twice{k + 1}"]) for k in range(levels)
    ]
    model = with_scale(nodes, f"twice{levels}")
    model.graph.input.append(helper.make_tensor_value_info("gamma", TensorProto.FLOAT, [8]))
    return model


def nested_calls(levels: int, calls: int) -> onnx.ModelProto:
    """A function that calls another ten times, which calls another ten times …, a reduction in the last."""
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("me", 1)]
    body = [helper.make_node("ReduceMean", ["a"], ["b"], axes=[-1])]
    functions = [helper.make_function("me", "f0", ["a"], ["b"], body, opsets)]
    for level in range(1, levels):
        names = ["a", *(f"t{k}" for k in range(1, calls)), "b"]
        body = [
            helper.make_node(f"f{level - 1}", [names[k]], [names[k + 1]], domain="me") for k in range(calls)
        ]
        functions.append(helper.make_function("me", f"f{level}", ["a"], ["b"], body, opsets))
    model = layer_norm()
    model.graph.node.append(helper.make_node(f"f{levels - 1}", ["y"], ["z"], domain="me"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    model.functions.extend(functions)
    model.opset_import.append(opsets[1])
    return model


def read_often(count: int) -> onnx.ModelProto:
    """One value that very many reductions read."""
    model = layer_norm()
    for k in range(count):
        model.graph.node.append(helper.make_node("ReduceMean", ["x"], [f"mean{k}"], axes=[-1]))
        model.graph.node.append(helper.make_node("Sqrt", [f"mean{k}"], [f"root{k}"]))
        model.graph.output.append(helper.make_tensor_value_info(f"root{k}", TensorProto.FLOAT, None))
    return model


LARGE: dict[str, Callable[[], onnx.ModelProto]] = {
    "a sum of a column and a row": lambda: outer("Add", 30_000),
    "a sum of a long column and a long row": lambda: outer("Add", 1_000_000),
    "a product of a column and a row": lambda: outer("MatMul", 30_000),
    "a row gathered as often as it is long": lambda: gathered(100_000),
    "a normalized product of a column and a row": lambda: weight_product(30_000),
    "an overridable constant doubled 12 times": lambda: doubled(12),
    "an overridable constant doubled 500 times": lambda: doubled(500),
    "functions that call functions, 10^9 nodes in all": lambda: nested_calls(10, 10),
    "a value that 5,000 reductions read": lambda: read_often(5_000),
}
