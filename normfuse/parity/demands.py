"""Sizes that a graph itself asks of a dynamic dimension: the first constant that the axis meets decides.

    features [batch, size, frames]   Conv(features, W[32, 80, 3])           size = 80
                                     Conv(stride 2), Add(·, P[1500, 32])    frames = 3000

An exporter that was told that every axis is dynamic leaves this to be found out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from normfuse.parity.model import Model
from normfuse.parity.symbols import Shapes

MOST_STEPS = 200
# Operators that keep every axis.
KEEPING = frozenset({
    "Cast", "Identity", "Dropout", "Relu", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh", "Erf", "Gelu",
    "Softplus", "HardSigmoid", "HardSwish", "Mish", "Clip", "Neg", "Abs", "Exp", "Log", "Sqrt", "Reciprocal",
    "Softmax", "QuantizeLinear", "DequantizeLinear", "BatchNormalization", "InstanceNormalization",
    "LayerNormalization",
})  # fmt: skip
# Operators whose operands are broadcast, last axes against last axes.
BROADCAST = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "PRelu"})
WINDOWS = frozenset({"Conv", "MaxPool", "AveragePool"})


@dataclass(frozen=True)
class Window:
    """What a convolution or pooling does to the length of an axis."""

    kernel: int
    stride: int
    dilation: int
    pads: int
    same: bool

    def needed(self, length: int) -> int:
        """An input length that gives `length`: `stride` times as much if that does, else the least."""
        reach = self.dilation * (self.kernel - 1) + 1
        wide = length * self.stride
        if self.same or (wide + self.pads - reach) // self.stride + 1 == length:
            return wide
        return (length - 1) * self.stride + reach - self.pads


@dataclass(frozen=True)
class Axis:
    """An axis of a value, counted from the end (-1), and the windows that it went through."""

    name: str
    rank: int
    axis: int
    windows: tuple[Window, ...] = ()

    def at(
        self, name: str, axis: int | None = None, rank: int | None = None, window: Window | None = None
    ) -> Axis:
        """The same axis in another value."""
        more = () if window is None else (window,)
        return Axis(
            name,
            self.rank if rank is None else rank,
            self.axis if axis is None else axis,
            self.windows + more,
        )

    @property
    def front(self) -> int:
        """The axis, counted from the front."""
        return self.rank + self.axis


def demanded(model: Model, shapes: Shapes) -> dict[str, int]:
    """Sizes of symbols that stand alone in an input's shape and meet a constant in the main graph."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.proto.graph.node:
        for name in dict.fromkeys(node.input):
            readers.setdefault(name, []).append(node)
    found: dict[str, int] = {}
    for name, dims in shapes.sizes.items():
        for axis, size in enumerate(dims):
            symbol = (
                size.symbols[0] if len(size.symbols) == 1 and size.value({size.symbols[0]: 97}) == 97 else ""
            )
            if symbol and symbol not in found:
                asked = _asked(model, readers, Axis(name, len(dims), axis - len(dims)))
                found.update({} if asked is None else {symbol: asked})
    return found


def _asked(model: Model, readers: Mapping[str, Sequence[onnx.NodeProto]], start: Axis) -> int | None:
    """The size that the nearest constant gives an axis."""
    queue, seen = [start], {start.name}
    while queue and len(seen) < MOST_STEPS:
        here = queue.pop(0)
        for node in readers.get(here.name, ()):
            size = _size(model, node, here)
            if size is not None:
                for window in reversed(here.windows):
                    size = window.needed(size)
                return size if size > 0 else None
            for onward in _onward(model, node, here):
                if onward.name not in seen:
                    seen.add(onward.name)
                    queue.append(onward)
    return None


def _size(model: Model, node: onnx.NodeProto, here: Axis) -> int | None:
    """The size that a node's constant operand has for the axis, if it says any."""
    others = [dims for name in node.input if name != here.name and (dims := _dims(model, name)) is not None]
    if node.op_type in BROADCAST or node.op_type == "LayerNormalization":
        sizes = [dims[here.axis] for dims in others if len(dims) >= -here.axis]
        return next((size for size in sizes if size != 1), None)
    if node.op_type in ("BatchNormalization", "InstanceNormalization"):
        return others[0][0] if others and len(others[0]) == 1 and here.front == 1 else None
    if not others or node.input[0] != here.name:
        return None
    weight = others[0]
    if node.op_type == "Conv" and len(weight) == here.rank and here.front == 1:
        return weight[1] * _integer(node, "group", 1)
    if node.op_type == "MatMul" and len(weight) >= 2 and here.axis == -1:
        return weight[-2]
    if node.op_type == "Gemm" and here.axis == -1 and not _integer(node, "transA", 0):
        return weight[1] if _integer(node, "transB", 0) else weight[0]
    return None


def _onward(model: Model, node: onnx.NodeProto, here: Axis) -> Iterator[Axis]:
    """Where the axis is in what a node computes."""
    out = node.output[0] if node.output else ""
    if node.op_type in KEEPING and node.input[0] == here.name:
        yield here.at(out)
    elif node.op_type in BROADCAST:
        known = [dims for name in node.input if (dims := _dims(model, name)) is not None]
        yield here.at(out, rank=max([here.rank, *map(len, known)]))
    elif node.op_type == "Transpose":
        order = next((list(a.ints) for a in node.attribute if a.name == "perm"), list(range(here.rank))[::-1])
        if len(order) == here.rank:
            yield here.at(out, axis=order.index(here.front) - here.rank)
    elif node.op_type == "MatMul" and node.input[0] == here.name and here.axis < -1:
        yield here.at(out)
    elif node.op_type in WINDOWS and node.input[0] == here.name and here.front != 1:
        yield here.at(out, window=_window(model, node, here.front - 2) if here.front > 1 else None)


def _window(model: Model, node: onnx.NodeProto, k: int) -> Window:
    lists = {a.name: list(a.ints) for a in node.attribute if a.ints}
    weight = _dims(model, node.input[1]) if node.op_type == "Conv" else None
    kernel = weight[2 + k] if weight is not None else lists.get("kernel_shape", [1] * (k + 1))[k]
    pads = lists.get("pads", [0] * 2 * (k + 1))
    same = next((a.s.startswith(b"SAME") for a in node.attribute if a.name == "auto_pad"), False)
    stride, dilation = (lists.get(name, [1] * (k + 1))[k] for name in ("strides", "dilations"))
    return Window(kernel, stride, dilation, pads[k] + pads[k + len(pads) // 2], same)


def _dims(model: Model, name: str) -> list[int] | None:
    tensor = model.constant(name) if name else None
    return None if tensor is None else [int(n) for n in tensor.dims]


def _integer(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)
