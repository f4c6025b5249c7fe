"""A grammar of norms on a view of the channels in groups, and of what may be wrong about it.

x [N, C, H, W] -> view -> norm over its last axes -> affine -> view back -> affine
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Pick = Callable[[Sequence[Any]], Any]
SHAPES: tuple[tuple[int | str, ...], ...] = (
    (2, 4, 4, 4),
    (2, 4, 3, 5),
    (1, 8, 2, 2),
    ("N", 4, 4, 4),
    (2, 8, 4),
    (2, 4, 4),
    ("N", 4, 3),
    (4, 4, 4, 4),
    (1, 4, 4, 1),
    (2, 4, 2, 2, 2),
)


class Viewed:
    """A model that is written node by node."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.shape: tuple[int | str, ...] = pick(SHAPES)
        self.channels, self.spatial = int(self.shape[1]), [int(n) for n in self.shape[2:]]

    def add(self, op_type: str, *operands: str, **attributes: Any) -> str:
        """A node, and the name of its output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, operands, [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """An initializer."""
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def parameter(self, shape: Sequence[int]) -> str:
        """A constant that varies."""
        size = int(np.prod(shape))
        return self.constant(np.linspace(-1.5, 2.0, size).reshape(shape) + 0.1)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """A Reshape to a constant shape."""
        return self.add("Reshape", value, self.constant(shape, np.int64))

    def view(self, groups: int) -> tuple[str, list[int], int]:
        """x in groups: the value, the sizes behind the first dimension, how many of them are normalized."""
        per, length = self.channels // groups, self.channels // groups * int(np.prod(self.spatial))
        batch = [0] if isinstance(self.shape[0], str) else [int(self.shape[0])]
        way = self.pick(("flat", "flat", "split", "rows", "transposed"))
        if way == "split":
            return (
                self.reshape("x", [*batch, groups, per, *self.spatial]),
                [groups, per, *self.spatial],
                len(self.spatial) + 1,
            )
        if way == "rows":
            return self.reshape("x", [-1, length]), [length], 1
        if way == "transposed" and len(self.spatial) == 2:
            perm = self.pick(([0, 2, 3, 1], [0, 1, 3, 2]))
            return (
                self.reshape(self.add("Transpose", "x", perm=perm), [*batch, groups, length]),
                [groups, length],
                1,
            )
        return self.reshape("x", [*batch, groups, self.pick((-1, length))]), [groups, length], 1

    def normalized(self, value: str, rank: int, count: int) -> str:
        """The norm over the last axes of a view."""
        axes = list(range(rank - count, rank))
        if self.pick((True, False)) and rank >= 3 and count == rank - 2:
            channels = self.groups
            scale = self.pick((np.ones(channels), np.linspace(1, 2, channels)))
            bias = self.pick((np.zeros(channels), np.linspace(-1, 2, channels)))
            operands = (value, self.constant(scale), self.constant(bias))
            return self.add("InstanceNormalization", *operands, epsilon=0.125)
        centred = self.pick((True, True, False))
        if centred:
            value = self.add("Sub", value, self.add("ReduceMean", value, axes=axes))
        variance = self.add("ReduceMean", self.add("Mul", value, value), axes=axes)
        return self.add("Div", value, self.add("Sqrt", self.add("Add", variance, self.constant(0.125))))

    def back(self, value: str) -> str:
        """The view back, to the shape of x or to another of as many elements."""
        batch = 0 if isinstance(self.shape[0], str) else int(self.shape[0])
        way = self.pick(("shape", "shape", "constant", "constant", "swapped", "none"))
        if way == "shape":
            return self.add("Reshape", value, self.add("Shape", "x"))
        if way == "none":
            return value
        dims = [self.channels, *self.spatial]
        if way == "swapped":
            dims = dims[::-1]
        if batch == 0 and self.from_rows:
            return self.reshape(value, [-1, *dims])
        return self.reshape(value, [batch, *dims])

    def affine(self, value: str) -> str:
        """A scale and a bias along some axes, those of the channels among them."""
        dims = [self.channels, *self.spatial]
        shapes: list[Sequence[int]] = [
            *([self.channels, *[1] * len(self.spatial)],) * 2,
            [1, self.channels, *[1] * len(self.spatial)],
            dims[-1:],
            [*dims[-2:-1], 1],
            [1],
            [],
            dims,
            [self.groups, 1],
        ]
        for op_type in self.pick((("Mul", "Add"), ("Mul",), ("Add",), (), ("Mul", "Add"))):
            value = self.add(op_type, value, self.parameter(self.pick(shapes)))
        return value

    def write(self) -> str:
        """Write the whole; returns the output."""
        self.groups = self.pick([g for g in (1, 2, 4, self.channels) if self.channels % g == 0])
        value, dims, count = self.view(self.groups)
        self.from_rows = len(dims) == 1
        value = self.normalized(value, 1 + len(dims), count)
        if self.pick((True, False, False)):
            value = self.affine(value)
        return self.affine(self.back(value))

    def model(self) -> onnx.ModelProto:
        """The model; of its output no more than the rank is declared."""
        output = self.write()
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        graph = helper.make_graph(
            self.nodes, "viewed", inputs, [onnx.ValueInfoProto(name=output)], self.initializers
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph.output[0]
        rank = len(inferred.type.tensor_type.shape.dim)
        declared = helper.make_tensor_value_info(output, TensorProto.FLOAT, [f"d{k}" for k in range(rank)])
        proto.graph.output[0].CopyFrom(declared)
        return proto
