"""Small parts of a lowering: scale and bias as constants of the graph, nodes with names."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from normfuse.algebra.polynomial import Coefficient
from normfuse.graph.facts import Facts
from normfuse.graph.surgery import add_constant
from normfuse.norms.norm import Norm


class Builder:
    """Builds the nodes of one site.

    facts: of the model that is rewritten. x: the value that the site reads now (an earlier site may have
    replaced the one that was recognised).
    """

    def __init__(self, facts: Facts, norm: Norm, x: ir.Value) -> None:
        self.facts = facts
        self.norm = norm
        self.x = x
        self.nodes: list[ir.Node] = []
        anchor = norm.output.producer()
        self.stem = norm.output.name or (anchor.name if anchor is not None else None) or norm.kind

    def emit(self, op_type: str, *operands: ir.Value, **attributes: Any) -> ir.Value:
        """A new node of one output, in the default domain."""
        name = self.facts.names.node(f"{self.stem}/{op_type}")
        node = ir.node(op_type, operands, attributes, name=name)
        node.outputs[0].name = self.facts.names.value(f"{self.stem}/{op_type}")
        node.outputs[0].type = ir.TensorType(self.norm.dtype)
        self.nodes.append(node)
        return node.outputs[0]

    def parameter(
        self, coefficient: Coefficient, axes: tuple[int, ...], sizes: tuple[int, ...], wish: str
    ) -> ir.Value:
        """Scale or bias as a constant of shape `sizes`, in the norm's type; the model's own if it is that."""
        with np.errstate(over="ignore"):
            array = self.norm.parameter(coefficient, axes, sizes).astype(self.norm.dtype.numpy())
        known = self._existing(array)
        return known if known is not None else add_constant(self.facts, array, f"{self.stem}/{wish}")

    def _existing(self, array: np.ndarray[Any, Any]) -> ir.Value | None:
        """An initializer that the spelled nodes read and that is exactly this array."""
        for node in self.norm.spelled:
            for value in node.inputs:
                if value is None or not value.is_initializer() or value.graph is not self.facts.model.graph:
                    continue
                if self.facts.shapes.of(value) != array.shape or value.dtype != self.norm.dtype:
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
