"""Random programs of linear operators, affines and all that moves channels: folded, they compute the same.

Values are reused, split, joined and given out at random, so that most of what must hold for a fold fails for
some of them; whatever is folded then has to be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
from folding_models import Array, folded
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Shape = tuple[int, ...]


class Program:
    """A model in float64 that grows by one random operator at a time."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.values: list[tuple[str, Shape]] = [("x", (2, 4, 4, 4))]

    def grow(self) -> None:
        """One more operator on a recent value, where it fits."""
        name, shape = self.values[-1 - min(self.random.geometric(0.7) - 1, len(self.values) - 1)]
        GROWTH[self.random.integers(len(GROWTH))](self, name, shape)

    def node(self, operator: str, operands: list[str], *shapes: Shape, **attributes: object) -> None:
        outputs = [f"v{len(self.nodes)}_{k}" for k in range(len(shapes))]
        node = helper.make_node(operator, operands, outputs, f"n{len(self.nodes)}", **attributes)
        self.nodes.append(node)
        self.values += zip(outputs, shapes, strict=True)

    def constant(self, array: Array) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = array
        return name

    def weights(self, *shape: int) -> str:
        """New weights, or at times those of another operator."""
        same = [
            name
            for name, array in self.constants.items()
            if array.shape == shape and array.dtype == np.float64
        ]
        if same and self.random.random() < 0.2:
            return same[0]
        return self.constant(self.random.uniform(0.5, 1.5, shape) * self.random.choice([-1, 1], shape))

    def model(self) -> onnx.ModelProto:
        """All that nobody reads goes out, and a few others."""
        read = {operand for node in self.nodes for operand in node.input}
        given = [(n, s) for n, s in self.values[1:] if n not in read or self.random.random() < 0.05]
        double = TensorProto.DOUBLE
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", double, (2, 4, 4, 4))],
            [helper.make_tensor_value_info(n, double, s) for n, s in given],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def conv(p: Program, x: str, shape: Shape) -> None:
    if len(shape) != 4 or min(shape[2:]) < 2:
        return
    groups = 2 if shape[1] % 2 == 0 and p.random.random() < 0.4 else 1
    outputs, kernel = groups * int(p.random.integers(1, 4)), int(p.random.integers(1, 3))
    pads = [1, 0, 0, 1] if p.random.random() < 0.3 else [0, 0, 0, 0]
    size = tuple(d - kernel + 1 + pads[k] + pads[k + 2] for k, d in enumerate(shape[2:]))
    operands = [x, p.weights(outputs, shape[1] // groups, kernel, kernel)]
    operands += [p.weights(outputs)] if p.random.random() < 0.5 else []
    p.node("Conv", operands, (shape[0], outputs, *size), group=groups, pads=pads)


def matmul(p: Program, x: str, shape: Shape) -> None:
    outputs = int(p.random.integers(1, 5))
    if p.random.random() < 0.7:
        p.node("MatMul", [x, p.weights(shape[-1], outputs)], (*shape[:-1], outputs))
    elif len(shape) >= 2:
        p.node("MatMul", [p.weights(outputs, shape[-2]), x], (*shape[:-2], outputs, shape[-1]))


def gemm(p: Program, x: str, shape: Shape) -> None:
    if len(shape) == 2:
        outputs = int(p.random.integers(1, 5))
        operands = [
            x,
            p.weights(outputs, shape[1]),
            p.weights(*[(outputs,), (1, outputs), ()][p.random.integers(3)]),
        ]
        p.node("Gemm", operands, (shape[0], outputs), transB=1, alpha=0.5, beta=2.0)


def affine(p: Program, x: str, shape: Shape) -> None:
    operator = str(p.random.choice(["Mul", "Add", "Sub", "Div"]))
    sizes = [1] * len(shape)
    for axis in [p.random.integers(len(shape))] if p.random.random() < 0.9 else range(len(shape)):
        sizes[axis] = shape[axis]
    operands = [x, p.weights(*sizes) if p.random.random() < 0.8 else p.weights()]
    p.node(
        operator,
        operands[::-1] if operator in ("Mul", "Add", "Sub") and p.random.random() < 0.3 else operands,
        shape,
    )


def channel_affine(p: Program, x: str, shape: Shape) -> None:
    if len(shape) >= 2:
        p.node(str(p.random.choice(["Mul", "Add"])), [x, p.weights(shape[1], *[1] * (len(shape) - 2))], shape)


def batch_norm(p: Program, x: str, shape: Shape) -> None:
    if len(shape) >= 2:
        parameters = [p.constant(p.random.uniform(0.5, 1.5, shape[1])) for _ in range(4)]
        p.node("BatchNormalization", [x, *parameters], shape, epsilon=0.25)


def transpose(p: Program, x: str, shape: Shape) -> None:
    order = [int(k) for k in p.random.permutation(len(shape))]
    p.node("Transpose", [x], tuple(shape[k] for k in order), perm=order)


def reshape(p: Program, x: str, shape: Shape) -> None:
    cut = int(p.random.integers(1, len(shape) + 1))
    targets = [
        (math.prod(shape[:cut]), math.prod(shape[cut:])),
        (*shape[: cut - 1], 1, *shape[cut - 1 :]),
        (*shape[: cut - 1], math.prod(shape[cut - 1 :])),
    ]
    if shape[cut - 1] % 2 == 0:
        targets.append((*shape[: cut - 1], 2, shape[cut - 1] // 2, *shape[cut:]))
    target = targets[p.random.integers(len(targets))]
    p.node("Reshape", [x, p.constant(np.array(target))], target)


def pool(p: Program, x: str, shape: Shape) -> None:
    if len(shape) == 4:
        p.node(str(p.random.choice(["GlobalAveragePool", "GlobalMaxPool"])), [x], (*shape[:2], 1, 1))


def mean(p: Program, x: str, shape: Shape) -> None:
    axis = int(p.random.integers(len(shape)))
    if len(shape) > 2:
        p.node("ReduceMean", [x], shape[:axis] + shape[axis + 1 :], axes=[axis], keepdims=0)


def concat(p: Program, x: str, shape: Shape) -> None:
    axis = int(p.random.integers(len(shape)))
    rest = shape[:axis] + shape[axis + 1 :]
    others = [(n, s) for n, s in p.values if len(s) == len(shape) and s[:axis] + s[axis + 1 :] == rest]
    other, sizes = others[p.random.integers(len(others))]
    p.node("Concat", [x, other], (*shape[:axis], shape[axis] + sizes[axis], *shape[axis + 1 :]), axis=axis)


def split(p: Program, x: str, shape: Shape) -> None:
    axis = int(p.random.integers(len(shape)))
    if shape[axis] > 1:
        sizes = [1, shape[axis] - 1]
        shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        p.node("Split", [x, p.constant(np.array(sizes))], *shapes, axis=axis)


def add(p: Program, x: str, shape: Shape) -> None:
    others = [n for n, s in p.values if s == shape]
    p.node("Add", [x, others[p.random.integers(len(others))]], shape)


def unary(p: Program, x: str, shape: Shape) -> None:
    p.node(str(p.random.choice(["Relu", "Identity", "Neg", "Tanh"])), [x], shape)


GROWTH: list[Callable[[Program, str, Shape], None]] = [
    conv, conv, matmul, matmul, gemm, affine, channel_affine, channel_affine, batch_norm, batch_norm,
    transpose, transpose, reshape, reshape, pool, mean, concat, split, add, unary,
]  # fmt: skip


def all_values(model: onnx.ModelProto, x: Array) -> dict[str, Array]:
    """What every value of a model holds."""
    names = [name for node in model.graph.node for name in node.output]
    given = {value.name for value in model.graph.output}
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in given)
    return dict(zip(names, ReferenceEvaluator(shown).run(names, {"x": x}), strict=True))


@settings(max_examples=120)
@given(st.integers(0, 10**6), st.integers(2, 14))
def test_a_folded_program_computes_the_same(seed: int, size: int) -> None:
    """Every value that still has its name holds what it held, and sites begin and end at such values."""
    program = Program(seed)
    for _ in range(size):
        program.grow()
    if not program.nodes:
        return
    model = program.model()
    onnx.checker.check_model(model, full_check=True)
    done = folded(model)
    assert [str(v) for v in done.model.graph.output] == [str(v) for v in model.graph.output]
    assert len(done.model.graph.node) <= len(model.graph.node)
    x = np.random.default_rng(seed).normal(size=(2, 4, 4, 4))
    before, after = all_values(model, x), all_values(done.model, x)
    for name in before.keys() & after.keys():
        noise = 1e-8 * max(1.0, float(np.abs(before[name]).max()))
        np.testing.assert_allclose(after[name], before[name], rtol=1e-8, atol=noise)
    common = (before.keys() & after.keys()) | {"x"}
    assert {record.output for record in done.records} <= common
    assert {record.input for record in done.records} <= common
    assert not folded(done.model).records
