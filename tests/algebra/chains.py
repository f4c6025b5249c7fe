"""Random chains of ONNX operators over one base value, for the laws of the algebra.

A chain is built from a list of small numbers, so hypothesis can draw and shrink it: each step picks an
operator of `STEPS` and its operands among the values that exist already. A step that the shapes do not
allow adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Step = tuple[int, int, int, int]
OPSET = 17
CONSTANTS = (-1.5, 0.5, 2.0, 1e-3, 3.0)
EXPONENTS = (2.0, 0.5, -0.5, -1.0, 3.0, -2.0, 1.0)
VIEWS = (
    (2, 12),
    (6, 4),
    (2, 3, 2, 2),
    (24,),
    (4, 6),
    (3, 8),
    (2, 2, 6),
    (1, 24),
    (4, 3, 2),
    (12, 1, 2),
    (2, 1, 3, 4),
    (8, 3),
    (9,),
    (3, 3, 1),
    (2, 6),
    (4, 4),
    (16,),
    (2, 8),
    (8, 2),
    (3, 2),
    (6,),
    (2, 2),
    (4,),
)
SHAPES = ((2, 3, 4), (3, 3), (4,), (2, 1, 3), (3, 1), (1, 2, 2), (1, 1), (2, 2, 2, 2))


@dataclass
class Chain:
    """A graph that grows: the values that exist, with their shapes."""

    shape: tuple[int, ...]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes = {"x": self.shape, "z": self.shape}

    def constant(self, array: Any, dtype: Any = np.float64) -> str:
        """A new initializer."""
        name = f"c{len(self.initializers)}"
        self.initializers[name] = np.asarray(array, dtype)
        return name

    def add(self, op_type: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Any) -> None:
        """A new node."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        self.shapes[name] = tuple(shape)

    def pick(self, k: int, *, run_time: bool = False) -> str:
        """One of the values that exist; z, which is no descendant of x, only where it is allowed."""
        names = [n for n in self.shapes if run_time or n != "z"]
        return names[-1 - k % len(names)]

    def model(self) -> onnx.ModelProto:
        """The model, every value an output."""

        def info(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.DOUBLE, self.shapes[name])

        inner = [n for n in self.shapes if n not in ("x", "z")]
        tensors = [numpy_helper.from_array(a, n) for n, a in self.initializers.items()]
        graph = helper.make_graph(
            self.nodes, "chain", [info("x"), info("z")], [info(n) for n in inner], tensors
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def build(shape: tuple[int, ...], steps: Sequence[Step]) -> Chain:
    """The chain of a list of steps."""
    chain = Chain(shape)
    for which, a, b, c in steps:
        STEPS[which % len(STEPS)](chain, a, b, c)
    return chain


def _binary(op_type: str) -> Callable[[Chain, int, int, int], None]:
    def step(chain: Chain, a: int, b: int, c: int) -> None:
        left, right = chain.pick(a), chain.pick(b, run_time=True)
        if c % 3 == 1:
            left, right = right, left
        try:
            shape = np.broadcast_shapes(chain.shapes[left], chain.shapes[right])
        except ValueError:
            return
        if len(shape) <= 5:
            chain.add(op_type, [left, right], shape)

    return step


def _with_constant(op_type: str) -> Callable[[Chain, int, int, int], None]:
    def step(chain: Chain, a: int, b: int, c: int) -> None:
        x = chain.pick(a)
        shape = chain.shapes[x]
        row, column = (1,) * max(len(shape) - 1, 0) + shape[-1:], shape[:1] + (1,) * (len(shape) - 1)
        options = [(), (1,), shape[-1:], row, column, chain.shape[-1:]]
        wanted = options[c % len(options)]
        size = int(np.prod(wanted))
        array = np.array([CONSTANTS[(b + k) % len(CONSTANTS)] for k in range(size)]).reshape(wanted)
        if c % 7 == 3:
            array = np.full(wanted, CONSTANTS[b % len(CONSTANTS)])
        try:
            result = np.broadcast_shapes(shape, wanted)
        except ValueError:
            return
        name = chain.constant(array)
        chain.add(op_type, [x, name] if b % 2 else [name, x], result)

    return step


def _unary(op_type: str) -> Callable[[Chain, int, int, int], None]:
    def step(chain: Chain, a: int, b: int, c: int) -> None:
        x = chain.pick(a)
        chain.add(op_type, [x], chain.shapes[x])

    return step


def _pow(chain: Chain, a: int, b: int, c: int) -> None:
    x = chain.pick(a)
    shape = ((), (1,), chain.shape[-1:])[c % 3]
    try:
        result = np.broadcast_shapes(chain.shapes[x], shape)
    except ValueError:
        return
    chain.add("Pow", [x, chain.constant(np.full(shape, EXPONENTS[b % len(EXPONENTS)]))], result)


def _max(chain: Chain, a: int, b: int, c: int) -> None:
    x = chain.pick(a)
    shape = ((), (1,), chain.shape[-1:])[c % 3]
    try:
        result = np.broadcast_shapes(chain.shapes[x], shape)
    except ValueError:
        return
    chain.add("Max", [x, chain.constant(np.full(shape, (0.0, 0.25, -1.0)[b % 3]))], result)


def _reduce(op_type: str) -> Callable[[Chain, int, int, int], None]:
    def step(chain: Chain, a: int, b: int, c: int) -> None:
        x = chain.pick(a)
        shape = chain.shapes[x]
        if not shape:
            return
        axes = sorted({b % len(shape), (b // 7) % len(shape)})
        keep = c % 3 != 0
        result = [1 if k in axes else n for k, n in enumerate(shape) if keep or k not in axes]
        if op_type == "ReduceSum":
            chain.add(op_type, [x, chain.constant(axes, np.int64)], result, keepdims=int(keep))
        else:
            chain.add(op_type, [x], result, axes=axes, keepdims=int(keep))

    return step


def _unsqueeze(chain: Chain, a: int, b: int, c: int) -> None:
    x = chain.pick(a)
    shape = list(chain.shapes[x])
    if len(shape) >= 5:
        return
    at = b % (len(shape) + 1)
    shape.insert(at, 1)
    chain.add("Unsqueeze", [x, chain.constant([at], np.int64)], shape)


def _reshape(chain: Chain, a: int, b: int, c: int) -> None:
    x = chain.pick(a)
    shape = list(chain.shapes[x])
    if c % 2:
        shape = [n for n in shape if n != 1]
    if c % 3 == 0 and len(shape) < 5:
        shape.insert(b % (len(shape) + 1), 1)
    if c % 5 == 4:
        shape = shape[::-1]
    chain.add("Reshape", [x, chain.constant(shape, np.int64)], shape)


def _view(chain: Chain, a: int, b: int, c: int) -> None:
    """Reshape to other dimensions with as many elements."""
    x = chain.pick(a)
    size = int(np.prod(chain.shapes[x]))
    fitting = [s for s in (*VIEWS, *SHAPES) if int(np.prod(s)) == size]
    if fitting:
        shape = fitting[b % len(fitting)]
        chain.add("Reshape", [x, chain.constant(shape, np.int64)], shape)


def _count(chain: Chain, a: int, b: int, c: int) -> None:
    """Gather by 0, 1, 2, … from a vector, in another shape."""
    vectors = [n for n, s in chain.shapes.items() if len(s) == 1 and n != "z"]
    if vectors:
        x = vectors[a % len(vectors)]
        (size,) = chain.shapes[x]
        rows = next((k for k in (2, 3) if size % k == 0 and b % 2), 1)
        indices = np.arange(size).reshape(rows, -1)
        if c % 3 == 0:
            indices = indices[:, ::-1]
        chain.add("Gather", [x, chain.constant(indices, np.int64)], indices.shape)


def _expand(chain: Chain, a: int, b: int, c: int) -> None:
    x = chain.pick(a)
    try:
        shape = np.broadcast_shapes(chain.shapes[x], chain.shape)
    except ValueError:
        return
    chain.add("Expand", [x, chain.constant(shape, np.int64)], shape)


def _transpose(chain: Chain, a: int, b: int, c: int) -> None:
    x = chain.pick(a)
    rank = len(chain.shapes[x])
    if rank:
        perm = [int(k) for k in np.random.default_rng(b).permutation(rank)]
        chain.add("Transpose", [x], [chain.shapes[x][k] for k in perm], perm=perm)


def _fused(op_type: str) -> Callable[[Chain, int, int, int], None]:
    def step(chain: Chain, a: int, b: int, c: int) -> None:
        x = chain.pick(a)
        shape = chain.shapes[x]
        least = 1 if "Layer" in op_type or "RMS" in op_type else 3
        if len(shape) < least:
            return
        channels = shape[-1:] if least == 1 else shape[1:2]
        scale, bias, mean = (
            chain.constant([CONSTANTS[(b + i + k) % 5] for k in range(channels[0])]) for i in range(3)
        )
        operands = {
            "LayerNormalization": [x, scale, bias],
            "RMSNormalization": [x, scale],
            "InstanceNormalization": [x, scale, bias],
        }.get(op_type) or [x, scale, bias, mean, chain.constant(np.linspace(0.3, 2, channels[0]))]
        chain.add(op_type, operands, shape, epsilon=0.125)

    return step


STEPS: tuple[Callable[[Chain, int, int, int], None], ...] = (
    *(_binary(op) for op in ("Add", "Sub", "Mul", "Mul", "Div", "Div")),
    *(_with_constant(op) for op in ("Add", "Sub", "Mul", "Div")),
    *(_unary(op) for op in ("Neg", "Sqrt", "Reciprocal", "Abs", "Identity", "Relu")),
    *(
        _reduce(op)
        for op in ("ReduceMean", "ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2", "ReduceL1")
    ),
    *(_pow, _pow, _max, _unsqueeze, _reshape, _view, _view, _count, _expand, _transpose),
    *(
        _fused(op)
        for op in ("LayerNormalization", "RMSNormalization", "InstanceNormalization", "BatchNormalization")
    ),
)
