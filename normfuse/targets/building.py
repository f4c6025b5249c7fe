"""Small parts of a lowering: scale and bias as constants of the graph, nodes with names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from normfuse.algebra.coefficient import Coefficient
from normfuse.graph.facts import Facts
from normfuse.graph.surgery import add_constant, shared_constant
from normfuse.norms.norm import Norm
from normfuse.targets.kernels import DOMAINS

ALLOW_ZERO_OPSET = 14  # before it, no Reshape makes an empty tensor of a computed shape


class Builder:
    """Builds the nodes of one site.

    facts: of the model that is rewritten. x: the value that the site reads now (an earlier site may have
    replaced the one that was recognised). runtimes: of the target, for operators beside the norm.
    """

    def __init__(self, facts: Facts, norm: Norm, x: ir.Value, runtimes: tuple[str, ...]) -> None:
        self.facts = facts
        self.norm = norm
        self.x = x
        self.runtimes = runtimes
        self.nodes: list[ir.Node] = []
        self.besides: list[tuple[ir.Value, ir.Value]] = []
        anchor = norm.output.producer()
        self.stem = norm.output.name or (anchor.name if anchor is not None else None) or norm.kind

    def emit(self, op_type: str, *operands: ir.Value, **attributes: Any) -> ir.Value:
        """A new node of one output, of the norm's type, in the operator's own domain."""
        return self._node(op_type, operands, attributes, [self.norm.dtype])[0]

    def emit_integers(self, op_type: str, *operands: ir.Value) -> ir.Value:
        """A new node of one output of int64, such as Shape."""
        return self._node(op_type, operands, {}, [ir.DataType.INT64])[0]

    def emit_with_inverse(
        self, op_type: str, *operands: ir.Value, **attributes: Any
    ) -> tuple[ir.Value, ir.Value]:
        """A fused norm with the output that holds 1 / sqrt(variance + epsilon)."""
        unnamed = [None] if op_type == "LayerNormalization" else []  # its second output is the mean
        outputs = self._node(op_type, operands, attributes, [self.norm.dtype, *unnamed, ir.DataType.FLOAT])
        return outputs[0], outputs[-1]

    def emit_with_statistics(self, op_type: str, *operands: ir.Value, **attributes: Any) -> ir.Value:
        """A LayerNormalization whose mean and inverse deviation stand for values of the graph."""
        read = self.norm.statistics
        types = [ir.DataType.FLOAT if name in read else None for name in ("mean", "inverse")]
        while types and types[-1] is None:
            types.pop()
        y, *statistics = self._node(op_type, operands, attributes, [self.norm.dtype, *types])
        for name, value in zip(("mean", "inverse"), statistics, strict=False):
            if name in read:
                self.besides.append((read[name], value))
        return y

    def _node(
        self,
        op_type: str,
        operands: Sequence[ir.Value],
        attributes: dict[str, Any],
        types: Sequence[ir.DataType | None],
    ) -> Sequence[ir.Value]:
        wish = f"{self.stem}/{op_type}"
        node = ir.node(
            op_type,
            operands,
            attributes,
            domain=DOMAINS.get(op_type, ""),
            name=self.facts.names.node(wish),
            num_outputs=len(types),
        )
        for value, dtype in zip(node.outputs, types, strict=True):
            value.name = "" if dtype is None else self.facts.names.value(wish)
            value.type = None if dtype is None else ir.TensorType(dtype)
        self.nodes.append(node)
        return node.outputs

    def trailing(self) -> ir.Value:
        """x with the normalized axes last, behind a Transpose where they are not."""
        return self.x if self.norm.is_trailing else self.emit("Transpose", self.x, perm=self._order())

    def restored(self, y: ir.Value) -> ir.Value:
        """y, which came from `trailing`, with its axes where those of x are."""
        if self.norm.is_trailing:
            return y
        return self.emit("Transpose", y, perm=tuple(int(k) for k in np.argsort(self._order())))

    def _order(self) -> tuple[int, ...]:
        rest = (k for k in range(len(self.norm.shape)) if k not in self.norm.axes)
        return (*rest, *self.norm.axes)

    def shaped_like_x(self, y: ir.Value) -> ir.Value:
        """y in the shape of x: a constant one where at most one dimension behind the first is not known."""
        dims = [0, *(n if isinstance(n, int) else -1 for n in self.norm.shape[1:])]
        if dims.count(-1) <= 1 and 0 not in dims[1:]:
            return self.emit("Reshape", y, self.number(np.array(dims, np.int64), "shape"))
        empty = {"allowzero": 1} if self.facts.opset >= ALLOW_ZERO_OPSET else {}
        return self.emit("Reshape", y, self.emit_integers("Shape", self.x), **empty)

    def scaled(self, y: ir.Value, scale: ir.Value, bias: ir.Value, channels: tuple[int, ...]) -> ir.Value:
        """scale * y + bias along the second axis, as one BatchNormalization of mean 0 and variance 1."""
        dtype = self.norm.dtype.numpy()
        mean = self.number(np.zeros(channels, dtype), "mean")
        variance = self.number(np.ones(channels, dtype), "variance")
        return self.emit("BatchNormalization", y, scale, bias, mean, variance, epsilon=0.0)

    def number(self, array: np.ndarray[Any, Any], wish: str) -> ir.Value:
        """A constant of the lowering's own, shared between the sites of a model that need the same."""
        return shared_constant(self.facts, array, wish)

    def parameter(
        self,
        coefficient: Coefficient,
        axes: tuple[int, ...],
        sizes: tuple[int, ...],
        wish: str,
        dtype: ir.DataType | None = None,
        *,
        flat: bool = False,
    ) -> ir.Value:
        """Scale or bias as a constant of shape `sizes`; the model's own if it is that.

        dtype: of the constant, where it is not that of the norm. flat: as a vector.
        """
        stored = (dtype or self.norm.dtype).numpy()
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(self.norm.parameter(coefficient, axes, sizes).astype(stored))
        array = array.reshape(-1) if flat else array
        known = self._existing(array)
        if known is not None:
            return known
        if not isinstance(coefficient, np.ndarray):
            return self.number(array, wish)  # as in every other norm of this size
        return add_constant(self.facts, array, f"{self.stem}/{wish}")

    def _existing(self, array: np.ndarray[Any, Any]) -> ir.Value | None:
        """An initializer that the spelled nodes read and that is exactly this array."""
        shape_of, dtype = self.facts.shapes.of, ir.DataType.from_numpy(array.dtype)
        for node in self.norm.spelled:
            for value in node.inputs:
                if value is None or shape_of(value) != array.shape or value.dtype != dtype:
                    continue
                if not value.is_initializer() or value.graph is not self.facts.model.graph:
                    continue
                stored = self.facts.constants.get(value)
                if stored is not None and np.array_equal(stored.view(np.uint8), array.view(np.uint8)):
                    return value
        return None

    def static(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of axes that are known to be static."""
        sizes = tuple(n for k in axes if isinstance(n := self.norm.shape[k], int))
        if len(sizes) != len(axes):
            raise ValueError(f"the sizes of axes {axes} of {self.stem!r} are not static")
        return sizes
