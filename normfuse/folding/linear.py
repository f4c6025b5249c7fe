"""Linear operators with constant weights, and where the channels of input and output stand in the weights.

    Conv            W[g*o, i, k...]      seen as [g, o, i, k...]; output channel (g, o), input channel (g, i)
    ConvTranspose   W[g*i, o, k...]      seen as [g, i, o, k...]; the same
    Gemm            W[K, N] or [N, K]    output axis 1, input axis 1 (0 with transA)
    MatMul          W[..., K, N]         the last axis of both; a constant on the left: W[..., M, K], the rows
    Einsum          by its letters

So an affine on either side is a factor on the weights, of the shape of that side, and a shift in front is the
sum of the weights against it. One reader for each operator; everything else is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from normfuse.folding.affine import Affine, Array
from normfuse.folding.elementwise import FLOATS
from normfuse.folding.layout import is_padded
from normfuse.folding.stop import Stop
from normfuse.graph.facts import Facts


@dataclass(frozen=True)
class Side:
    """The channels of the data or of the output.

    axes, sizes: where they stand in that value and how many, in the order in which the weights have them.
    shape: the same channels in the weights (as `view` sees them), 1 for every other axis.
    rank: that of the value.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    rank: int

    def refuse(self, affine: Affine) -> Stop | None:
        """Why `affine` does not vary along these channels alone, or None when that is so."""
        if affine.rank != self.rank:
            return Stop("unknown-shape", f"rank {affine.rank} where {self.rank} was expected", reached=True)
        sizes = dict(zip(self.axes, self.sizes, strict=True))
        seen = zip(affine.scale.shape, affine.shift.shape, strict=True)
        if all({a, b} <= {1, sizes.get(axis, 1)} for axis, (a, b) in enumerate(seen)):
            return None
        along = ", ".join(str(axis) for axis in sorted(affine.varies()))
        where = f"it varies along axis {along}, the channels are axis {', '.join(map(str, self.axes))}"
        return Stop("channel-axis" if len(affine.varies()) == 1 else "not-per-channel", where, reached=True)

    def onto_weights(self, array: Array) -> Array:
        """An array that varies along these channels alone, shaped as a factor on the weights."""
        full = list(array.shape)
        for axis, size in zip(self.axes, self.sizes, strict=True):
            full[axis] = size
        spread = np.broadcast_to(array, full)
        others = [axis for axis in range(self.rank) if axis not in self.axes]
        return spread.transpose([*self.axes, *others]).reshape(self.shape)

    def onto_value(self, array: Array) -> Array:
        """The way back: one number a channel, in the order of the weights, to broadcast against the value."""
        ordered = array.reshape(self.sizes).transpose([int(k) for k in np.argsort(self.axes)])
        shape = [1] * self.rank
        for axis, size in zip(self.axes, self.sizes, strict=True):
            shape[axis] = size
        return ordered.reshape(shape)


@dataclass(frozen=True)
class Linear:
    """One operator: output = gain * (weights applied to data) + bias.

    view: the shape in which the weights are seen; inner, outer: the channels of the data and of the output.
    slot: which input of the node is its bias, None where the operator has none; share:
    what the node multiplies its bias by. rigid: why a shift in front cannot pass, "" where it can.
    """

    node: ir.Node
    data: ir.Value
    weight_index: int
    view: tuple[int, ...]
    inner: Side
    outer: Side
    slot: int | None = None
    gain: float = 1.0
    share: float = 1.0
    rigid: str = ""

    @property
    def weight(self) -> ir.Value:
        """The constant operand."""
        value = self.node.inputs[self.weight_index]
        assert value is not None
        return value

    @property
    def output(self) -> ir.Value:
        """The value that the operator computes."""
        return self.node.outputs[0]

    def bias(self, facts: Facts) -> Array | Stop | None:
        """The bias as a float64 array against the output; None where there is none."""
        if self.slot is None or len(self.node.inputs) <= self.slot:
            return None
        value = self.node.inputs[self.slot]
        if value is None:
            return None
        array = facts.constants.get(value)
        if array is None:
            overridable = facts.constants.depends_on_overridable(value)
            reason = "overridable-initializer" if overridable else "non-constant-bias"
            return Stop(reason, f"the bias {value.name!r}", reached=True)
        if array.size == 0:
            return None
        size = math.prod(self.outer.sizes)
        if array.size not in (1, size) or (array.ndim == 2 and array.shape[0] != 1):
            what = f"{value.name!r} of shape {list(array.shape)} varies along the rows"
            return Stop("not-per-channel", what, reached=True)
        spread = np.broadcast_to(array.astype(np.float64).reshape(-1), (size,)) * self.share
        return self.outer.onto_value(spread)

    def passed_on(self, weights: Array, shift: Array) -> Array:
        """What a shift of the data, applied to the weights (as `view` sees them), adds to the output."""
        factor = self.inner.onto_weights(shift)
        mixed = tuple(k for k, size in enumerate(self.outer.shape) if size == 1)
        total = (weights * factor).sum(axis=mixed, keepdims=True) * self.gain
        return self.outer.onto_value(total)


def is_linear(node: ir.Node) -> bool:
    """Whether `node` is one of these operators, whatever its operands."""
    return node.op_type in _READERS and node.domain == ""


def may_take(facts: Facts, node: ir.Node, data: ir.Value | None = None) -> bool:
    """Whether `read` has more to say of `node` than that its weights are computed: a quick look.

    data: the value that has to be its data, where that matters.
    """
    if data is not None and data is not node.inputs[0] and node.op_type not in _EITHER_SIDE:
        return False
    operands = node.inputs if node.op_type in _EITHER_SIDE else node.inputs[1:2]
    return any(operand is not data and _may_be_weights(facts, operand) for operand in operands)


def _may_be_weights(facts: Facts, value: ir.Value | None) -> bool:
    if value is None:
        return False
    producer = value.producer()
    if producer is None:
        return True  # constant, or else a graph input, perhaps an overridable one
    return "Dequantize" in producer.op_type or facts.constants.is_known(value)


def read(facts: Facts, node: ir.Node) -> Linear | Stop | None:
    """`node` as a linear operator; a Stop when its weights cannot be changed; None when it is none."""
    if not is_linear(node):
        return None
    return _READERS[node.op_type](facts, node)


def _weight(facts: Facts, value: ir.Value | None) -> tuple[int, ...] | Stop:
    """The shape of constant weights."""
    if value is None:
        return Stop("no-linear-neighbour", "the linear operator has no weights")
    shape = facts.shapes.of(value)
    if facts.constants.is_known(value):
        if facts.shapes.dtype(value) not in FLOATS or shape is None:
            return Stop("quantized-weight", f"the weights {value.name!r} are not floating-point")
        return tuple(int(d) for d in shape)
    producer, weights = value.producer(), f"the weights {value.name!r}"
    if producer is not None and "Dequantize" in producer.op_type:
        return Stop("quantized-weight", f"{weights} come from {producer.op_type}", reached=True)
    if facts.constants.depends_on_overridable(value):
        return Stop("overridable-initializer", f"{weights} are also a graph input", reached=True)
    return Stop("no-linear-neighbour", f"{weights} are computed at run time")


def _conv(facts: Facts, node: ir.Node) -> Linear | Stop:
    shape = _weight(facts, node.inputs[1])
    if isinstance(shape, Stop):
        return shape
    groups = node.attributes.get_int("group", 1)
    if groups < 1 or shape[0] % groups:
        return Stop("no-linear-neighbour", f"a Conv cannot have {groups} groups")
    outputs, inputs, kernel = shape[0] // groups, shape[1], shape[2:]
    pointwise = all(k == 1 for k in kernel)
    same = node.attributes.get_string("auto_pad", "NOTSET").startswith("SAME")  # pads nothing for a 1x1
    padded = any(node.attributes.get_ints("pads", ())) or (same and not pointwise)
    return _convolution(node, shape, (groups, outputs, inputs, *kernel), (groups, 1, inputs),
                        (groups, outputs, 1), "the Conv is padded" if padded else "")  # fmt: skip


def _conv_transpose(facts: Facts, node: ir.Node) -> Linear | Stop:
    shape = _weight(facts, node.inputs[1])
    if isinstance(shape, Stop):
        return shape
    groups = node.attributes.get_int("group", 1)
    inputs, outputs, kernel = shape[0] // groups, shape[1], shape[2:]
    names = ("strides", "kernel_shape")
    ones = all(k == 1 for name in names for k in node.attributes.get_ints(name, ())) and set(kernel) <= {1}
    grown = any(node.attributes.get_ints("output_padding", ())) or "output_shape" in node.attributes
    rigid = "" if ones and not grown and not is_padded(node) else "windows of the ConvTranspose overlap"
    return _convolution(node, shape, (groups, inputs, outputs, *kernel), (groups, inputs, 1),
                        (groups, 1, outputs), rigid)  # fmt: skip


def _convolution(
    node: ir.Node,
    shape: tuple[int, ...],
    view: tuple[int, ...],
    inner: tuple[int, ...],
    outer: tuple[int, ...],
    rigid: str,
) -> Linear | Stop:
    rest = (1,) * (len(shape) - 2)
    if node.inputs[0] is None or math.prod(view) != math.prod(shape) or len(shape) < 3:
        return Stop("unknown-shape", f"weights of shape {list(shape)}")
    return Linear(
        node, node.inputs[0], 1, view,
        Side((1,), (math.prod(inner),), (*inner, *rest), len(shape)),
        Side((1,), (math.prod(outer),), (*outer, *rest), len(shape)),
        slot=2, rigid=rigid,
    )  # fmt: skip


def _gemm(facts: Facts, node: ir.Node) -> Linear | Stop:
    shape = _weight(facts, node.inputs[1])
    if isinstance(shape, Stop):
        return shape
    if node.inputs[0] is None or len(shape) != 2 or facts.opset < 7:
        return Stop("unknown-shape", f"weights of shape {list(shape)}")
    turned = bool(node.attributes.get_int("transB", 0))
    features, outputs = shape[::-1] if turned else shape
    channel = 0 if node.attributes.get_int("transA", 0) else 1
    return Linear(
        node, node.inputs[0], 1, shape,
        Side((channel,), (features,), (1, features) if turned else (features, 1), 2),
        Side((1,), (outputs,), (outputs, 1) if turned else (1, outputs), 2),
        slot=2, gain=node.attributes.get_float("alpha", 1.0), share=node.attributes.get_float("beta", 1.0),
    )  # fmt: skip


def _matmul(facts: Facts, node: ir.Node) -> Linear | Stop:
    right = facts.constants.is_known(node.inputs[1]) or not facts.constants.is_known(node.inputs[0])
    index = 1 if right else 0
    data = node.inputs[1 - index]
    shape = _weight(facts, node.inputs[index])
    if isinstance(shape, Stop):
        return shape
    rank, result = facts.shapes.rank(data), facts.shapes.rank(node.outputs[0])
    if data is None or rank is None or result is None or facts.opset < 7:
        return Stop("unknown-shape", "the ranks around the MatMul are not known", reached=True)
    width = len(shape)
    mixed = max(width - 2, 0) if right else width - 1
    kept = None if width == 1 else (width - 1 if right else width - 2)
    inner = tuple(size if k == mixed else 1 for k, size in enumerate(shape))
    outer = tuple(size if k == kept else 1 for k, size in enumerate(shape))
    channel = rank - 1 if right or rank == 1 else rank - 2
    where = result - 1 if right or rank == 1 else result - 2
    return Linear(
        node, data, index, shape,
        Side((channel,), (shape[mixed],), inner, rank),
        Side((), (), outer, result) if kept is None else Side((where,), (shape[kept],), outer, result),
        rigid="" if math.prod(shape[:-2]) == 1 else "each batch has weights of its own",
    )  # fmt: skip


def _einsum(facts: Facts, node: ir.Node) -> Linear | Stop:
    equation = node.attributes.get_string("equation", "").replace(" ", "")
    terms, _, result = equation.partition("->")
    operands = terms.split(",")
    if len(node.inputs) != 2 or len(operands) != 2 or "->" not in equation or "." in equation:
        return Stop("no-linear-neighbour", f"Einsum {equation!r}")
    index = 1 if facts.constants.is_known(node.inputs[1]) else 0
    data, letters, of_data = node.inputs[1 - index], operands[index], operands[1 - index]
    shape = _weight(facts, node.inputs[index])
    if isinstance(shape, Stop):
        return shape
    if data is None or any(len(set(term)) != len(term) for term in (letters, of_data, result)):
        return Stop("no-linear-neighbour", f"Einsum {equation!r} takes a diagonal")
    inner, outer = (_letters(letters, shape, term) for term in (of_data, result))
    # A weight of size 1 may be repeated along its letter, so a shift would be summed more than once.
    repeats = [k for k, size in zip(letters, shape, strict=True) if size == 1 and k in of_data]
    alone = [letter for letter in of_data if letter not in letters and letter not in result] + repeats
    return Linear(
        node, data, index, shape, inner, outer,
        rigid=f"the Einsum sums over {alone[0]!r} of its data alone" if alone else "",
    )  # fmt: skip


def _letters(letters: str, shape: tuple[int, ...], term: str) -> Side:
    """The letters of the weights that a term shares with them."""
    sizes = dict(zip(letters, shape, strict=True))
    shared = [letter for letter in letters if letter in term]
    seen = tuple(size if letter in term else 1 for letter, size in sizes.items())
    return Side(tuple(map(term.index, shared)), tuple(sizes[letter] for letter in shared), seen, len(term))


_EITHER_SIDE = frozenset({"MatMul", "Einsum"})
_READERS: dict[str, Callable[[Facts, ir.Node], Linear | Stop]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Einsum": _einsum,
}
