"""A grammar of normalizations: any family in a random spelling, and with one thing wrong.

Everything is drawn with a function `pick(options)`, so that hypothesis (or a seeded generator) decides:

    spelled = spell(pick)                  a true norm: reductions, roots, operands, casts in any spelling
    spelled = spell(pick, flaw="axes")     the same with a flaw that makes it no norm, or moves its border
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

T = TypeVar("T")
Pick = Callable[[Sequence[Any]], Any]
Array = np.ndarray[Any, Any]

SHAPES: tuple[tuple[int | str, ...], ...] = (
    (4, 6),
    (2, 4, 6),
    (5, 5),
    ("B", "S", 6),
    ("B", 8),
    (2, 3, 4, 6),
    (8,),
    (3, 1, 5),
    (1, 6, 6),
    ("N", 6, 6),
)
IMAGES: tuple[tuple[int | str, ...], ...] = ((2, 4, 3, 5), ("N", 4, 6, 6), (2, 6, 4, 4), ("N", 8, "H", "W"))
KINDS = (*("LayerNorm",) * 4, *("RMSNorm",) * 3, "L2Norm", "InstanceNorm", "GroupNorm", "ChannelNorm")
EPSILONS = (1e-5, 1e-3, 0.25, 1e-6)
FLAWS = (
    "wrong-axes",
    "epsilon-outside",
    "exponent-3",
    "other-numerator",
    "keepdims-0",
    "not-centred",
    "half-mean",
    "epsilon-vector",
    "epsilon-at-run-time",
    "scale-of-rows",
    "scale-at-run-time",
    "wrong-sum",
    "other-variance",
    "deviation-used",
    "norm-used",
    "deviation-output",
    "absolute",
    "square-root-of-root",
    "scale-expands",
)


@dataclass
class Spelled:
    """A model that is written node by node, at one opset and in one type."""

    pick: Pick
    shape: tuple[int | str, ...]
    opset: int
    dtype: int
    flaw: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    inputs: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    axes: tuple[int, ...] = (-1,)
    kind: str = "LayerNorm"
    channel: int = -1  # the dimension along which scale and bias lie
    source: str = "x"  # the value that is normalized

    # -- the vocabulary ------------------------------------------------------------------------------------

    def add(self, op_type: str, *operands: str, **attributes: Any) -> str:
        """A node, and the name of its output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, operands, [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any = None) -> str:
        """A constant, as an initializer or a Constant node."""
        array = np.asarray(values, dtype or helper.tensor_dtype_to_np_dtype(self.dtype))
        name = f"c{len(self.initializers) + len(self.nodes)}"
        tensor = numpy_helper.from_array(array, name)
        if self.pick((True, False)):
            self.initializers.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def integers(self, values: Sequence[int]) -> str:
        """A constant of int64."""
        return self.constant(list(values), np.int64)

    def either(self, op_type: str, a: str, b: str) -> str:
        """A commutative operator, its operands in either order."""
        return self.add(op_type, *((a, b) if self.pick((True, False)) else (b, a)))

    def reduce(self, op_type: str, value: str, axes: Sequence[int], keepdims: int = 1) -> str:
        """A reduction, its axes where the opset has them."""
        if self.opset >= 18 or (op_type == "ReduceSum" and self.opset >= 13):
            return self.add(op_type, value, self.integers(axes), keepdims=keepdims)
        return self.add(op_type, value, axes=list(axes), keepdims=keepdims)

    def unsqueeze(self, value: str, axes: Sequence[int]) -> str:
        """Unsqueeze, its axes where the opset has them."""
        if self.opset >= 13:
            return self.add("Unsqueeze", value, self.integers(axes))
        return self.add("Unsqueeze", value, axes=list(axes))

    @property
    def rank(self) -> int:
        """The rank of x."""
        return len(self.shape)

    def count(self, axes: Sequence[int]) -> int:
        """How many elements a reduction runs over; 0 where that is not known."""
        sizes = [self.shape[a] for a in axes]
        return int(np.prod(sizes)) if all(isinstance(n, int) for n in sizes) else 0

    # -- the spellings -------------------------------------------------------------------------------------

    def mean(self, value: str, axes: Sequence[int] | None = None) -> str:
        """The mean of a value of the rank of x, keeping dimensions."""
        axes = self.axes if axes is None else axes
        way = self.pick(("mean", "mean", "mean", "sum", "restored", "steps"))
        if way == "sum":
            return self.divided(self.reduce("ReduceSum", value, axes), axes)
        if way == "restored":
            return self.unsqueeze(
                self.reduce("ReduceMean", value, axes, 0), sorted(a % self.rank for a in axes)
            )
        if way == "steps":
            for axis in axes:
                value = self.reduce("ReduceMean", value, [axis])
            return value
        return self.reduce("ReduceMean", value, self.pick((axes, [a % self.rank for a in axes])))

    def divided(self, total: str, axes: Sequence[int]) -> str:
        """A sum over its number of elements."""
        n = self.count(axes) + (self.flaw == "wrong-sum")
        way = self.pick(("div", "mul", "shape") if n else ("shape",))
        if way == "div" or self.flaw == "wrong-sum":
            return self.add("Div", total, self.constant(self.pick((n, [n]))))
        if way == "mul" and (
            self.dtype != TensorProto.FLOAT16 or n & (n - 1) == 0
        ):  # 1/6 is far off in float16
            return self.either("Mul", total, self.constant(1.0 / n))
        sizes = self.add(
            "Gather", self.add("Shape", self.source), self.integers([a % self.rank for a in axes]), axis=0
        )
        number = self.add("Cast", self.add("ReduceProd", sizes, keepdims=self.pick((0, 1))), to=self.dtype)
        return self.add("Div", total, number)

    def square(self, value: str) -> str:
        """value^2, or what a flaw makes of it."""
        if self.flaw == "exponent-3":
            return self.add("Pow", value, self.constant(3.0))
        if self.flaw == "absolute":
            return self.add("Abs", value)
        way = self.pick(("mul", "pow", "integer", "vector", "alias"))
        if way == "pow":
            return self.add("Pow", value, self.constant(2.0))
        if way == "integer" and self.opset >= 12:
            return self.add("Pow", value, self.constant(2, np.int64))
        if way == "vector":
            return self.add("Pow", value, self.constant([2.0]))
        return self.add("Mul", value, self.add("Identity", value) if way == "alias" else value)

    def statistic(self, deviation: str, mean: str | None) -> str:
        """The mean of the squares of the deviation."""
        axes = self.axes
        if self.flaw == "wrong-axes":
            axes = [0]
        if self.flaw == "keepdims-0":
            return self.reduce("ReduceMean", self.square(deviation), axes, 0)
        way = self.pick(("mean", "mean", "sumsquare", "moments", "l2"))
        if self.flaw in ("exponent-3", "absolute", "wrong-axes", "wrong-sum"):
            way = "mean" if self.flaw != "wrong-sum" else "sum"
        if way == "sum":
            return self.divided(self.reduce("ReduceSum", self.square(deviation), axes), axes)
        if way == "sumsquare":
            return self.divided(self.reduce("ReduceSumSquare", deviation, axes), axes)
        if way == "l2":
            return self.divided(self.square(self.reduce("ReduceL2", deviation, axes)), axes)
        if way == "moments" and mean is not None and self.dtype != TensorProto.FLOAT16:
            variance = self.add("Sub", self.mean(self.square(self.source)), self.square(mean))
            if self.pick((True, False)):
                return self.either("Max", variance, self.constant(0.0))
            return variance
        return self.mean(self.square(deviation), axes)

    def centred(self, mean: str) -> str:
        """x - mean."""
        if self.flaw == "half-mean":
            mean = self.add("Mul", mean, self.constant(0.5))
        way = self.pick(("sub", "sub", "negated", "added"))
        if way == "negated":
            return self.add("Neg", self.add("Sub", mean, self.source))
        if way == "added":
            return self.either("Add", self.source, self.add("Neg", mean))
        return self.add("Sub", self.source, mean)

    def with_epsilon(self, variance: str) -> str:
        """variance + epsilon, but for an L2 norm, which has none."""
        if self.kind == "L2Norm":
            return variance
        if self.flaw == "epsilon-vector":
            return self.either("Add", variance, self.constant(np.linspace(0.1, 1, int(self.shape[-1]))))
        if self.flaw == "epsilon-at-run-time":
            self.inputs["z"] = self.shape
            return self.either(
                "Add", variance, self.reduce("ReduceMax", self.add("Abs", "z"), range(self.rank))
            )
        epsilon = 0.25 if self.dtype == TensorProto.DOUBLE else self.pick(EPSILONS)  # that is a float32
        return self.either("Add", variance, self.constant(self.pick((epsilon, [epsilon]))))

    def over_root(self, numerator: str, variance: str) -> str:
        """numerator / sqrt(variance)."""
        if self.flaw == "epsilon-outside":
            return self.add(
                "Div", numerator, self.add("Add", self.add("Sqrt", variance), self.constant(0.25))
            )
        if self.flaw == "square-root-of-root":
            return self.add("Div", numerator, self.add("Sqrt", self.add("Sqrt", variance)))
        way = self.pick(("div", "reciprocal", "one-over", "power", "half", "outer-root"))
        if way == "div":
            return self.add("Div", numerator, self.add("Sqrt", variance))
        if way == "half":
            return self.add("Div", numerator, self.add("Pow", variance, self.constant(0.5)))
        if way == "power":
            inverse = self.add("Pow", variance, self.constant(-0.5))
        elif way == "outer-root":
            inverse = self.add("Sqrt", self.add("Reciprocal", variance))
        elif way == "one-over":
            inverse = self.add("Div", self.constant(1.0), self.add("Sqrt", variance))
        else:
            inverse = self.add("Reciprocal", self.add("Sqrt", variance))
        if self.flaw == "deviation-used":
            self.outputs.append(self.add("Mul", inverse, self.constant(2.0)))
        return self.either("Mul", numerator, inverse)

    def affine(self, normalized: str) -> str:
        """scale * normalized + bias, each of them or none."""
        width = int(self.shape[self.channel])
        values = np.linspace(-1.5, 2.0, width).reshape(-1, *(1,) * (-1 - self.channel))
        if self.flaw == "scale-of-rows":
            return self.either(
                "Mul", normalized, self.constant(np.linspace(0.5, 2, int(self.shape[-2]))[:, None])
            )
        if self.flaw == "scale-at-run-time":
            self.inputs["w"] = (width, *(1,) * (-1 - self.channel))
            return self.either("Mul", normalized, "w")
        if self.flaw == "scale-expands":
            larger = np.linspace(0.5, 2, 3 * width).reshape((3, *(1,) * (self.rank - 1), width))
            return self.either("Mul", normalized, self.constant(larger))
        way = self.pick(("none", "scale", "bias", "both", "bias-first", "one-plus"))
        scale = lambda: self.constant(self.pick((values, values[None], 1.75, [1.75])))  # noqa: E731
        if way == "one-plus":
            return self.either("Mul", normalized, self.either("Add", scale(), self.constant(1.0)))
        if way == "bias-first":
            return self.either("Mul", self.either("Add", normalized, self.constant(values[::-1])), scale())
        if way in ("scale", "both"):
            normalized = self.either("Mul", normalized, scale())
        if self.flaw == "norm-used":
            self.outputs.append(self.add("Neg", normalized))
        if way in ("bias", "both"):
            normalized = self.either("Add", normalized, self.constant(values[::-1]))
        return normalized

    # -- the whole -----------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the whole norm; its result is y."""
        self.inputs = {"x": self.shape}
        whole = self.shape
        if self.kind == "GroupNorm":
            self.view()
        normalized = self.normalized()
        if self.shape is not whole:
            self.shape = whole
            normalized = self.add("Reshape", normalized, self.add("Shape", "x"))
        self.outputs.insert(0, self.affine(normalized))

    def view(self) -> None:
        """Part of the channels together: [N, C, H, W] as [N, G, …]."""
        batch, channels, *spatial = self.shape
        groups, n = self.pick((1, 2)), 0 if isinstance(batch, str) else batch
        static = [s for s in spatial if isinstance(s, int)]
        length = int(channels) // groups * int(np.prod(static))
        known = len(static) == len(spatial)
        last = self.pick((-1, length)) if known else -1
        self.source = self.add("Reshape", "x", self.integers([int(n), groups, last]))
        self.shape, self.axes = (batch, groups, length if known else "L"), (-1,)

    def normalized(self) -> str:
        """The norm without its affine."""
        mean = None
        deviation = self.source
        if self.kind not in ("RMSNorm", "L2Norm"):
            mean = self.mean(self.source)
            deviation = self.centred(mean)
        if self.kind == "L2Norm" and not self.flaw and self.pick((True, False)):
            return self.add("Div", self.source, self.reduce("ReduceL2", self.source, self.axes))
        source = deviation
        if self.flaw == "other-variance":
            self.inputs["z"] = self.shape
            source, mean = "z", None
        variance = self.with_epsilon(self.statistic(source, mean))
        numerator = deviation
        if self.flaw == "not-centred" and self.kind == "LayerNorm":
            numerator = self.source
        elif self.flaw == "other-numerator":
            self.inputs["z"] = self.shape
            numerator = "z"
        elif mean is not None and self.pick((True, False, False)):
            numerator = self.centred(mean)
        if self.flaw == "deviation-output":
            self.outputs.append(self.add("Abs", deviation))
        return self.over_root(numerator, variance)

    def model(self) -> onnx.ModelProto:
        """The model; of its outputs no more than the rank is declared."""
        rank = self.rank + (self.flaw == "scale-expands")
        inputs = [helper.make_tensor_value_info(n, self.dtype, s) for n, s in self.inputs.items()]
        outputs = [
            helper.make_tensor_value_info(n, self.dtype, [f"{n}_{k}" for k in range(rank)])
            for n in self.outputs
        ]
        graph = helper.make_graph(self.live(), "spelled", inputs, outputs, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def live(self) -> list[onnx.NodeProto]:
        """The nodes that an output needs."""
        needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                needed.update(node.input)
                kept.append(node)
        return kept[::-1]


def spell(pick: Pick, flaw: str = "", opset: int = 0) -> Spelled:
    """A norm in a random spelling, with a flaw or without; of an opset, or of any."""
    shape = pick(SHAPES)
    if flaw in ("scale-of-rows", "scale-expands", "keepdims-0", "wrong-axes"):
        shape = pick([s for s in SHAPES if len(s) > 1 and all(isinstance(n, int) for n in s)])
    dtype = pick((*(TensorProto.FLOAT,) * 4, TensorProto.FLOAT16, TensorProto.DOUBLE))
    spelled = Spelled(pick, shape, opset or pick((11, 13, 17, 18, 21, 23)), dtype, flaw)
    spelled.kind = pick(KINDS) if not flaw else pick(("LayerNorm", "RMSNorm"))
    if spelled.kind in ("InstanceNorm", "GroupNorm", "ChannelNorm"):
        spelled.shape, spelled.channel = pick(IMAGES), -3
        spelled.axes = (1,) if spelled.kind == "ChannelNorm" else pick(((2, 3), (-1, -2)))
    elif len(shape) > 2 and all(isinstance(n, int) for n in shape[-2:]):
        spelled.axes = pick(((-1,), (-1,), (-2, -1), (-1, -2)))
    spelled.write()
    return spelled
