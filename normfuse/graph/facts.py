"""Everything that the rooms above may ask about a model's graph, behind one object.

Facts hold for the graph as it is: a rewrite that adds values states their shapes with `shapes.set`, and one
that replaces a value says so with `shapes.same_as`.

A node of ONNX's own operators is one whose domain is "": onnx-ir reads "ai.onnx" as that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from normfuse.graph.constants import Constants
from normfuse.graph.names import Names
from normfuse.graph.scopes import graphs
from normfuse.graph.shapes import Shapes, infer


class Facts:
    """Constants, shapes and names of one model.

    made: the small constants that rewrites share. orphans: initializers that may have lost their readers.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        scopes = graphs(model)
        self._nested = len(scopes) > 1
        self.shapes: Shapes = infer(model, scopes)
        self.constants = Constants(model, self.shapes)
        self.names = Names(model, scopes)
        self.orphans: dict[ir.Value, None] = {}
        self.made: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    def graphs(self) -> list[ir.Graph]:
        """The main graph and the bodies in it; a rewrite may remove bodies, and adds none."""
        return graphs(self.model) if self._nested else [self.model.graph]

    @property
    def opset(self) -> int:
        """The version of the default operator set that the model imports."""
        return int(self.model.opset_imports.get("", 1))

    def integers(self, value: ir.Value | None) -> tuple[int | str, ...] | None:
        """A small integer tensor, flattened: from constants, or from shape arithmetic."""
        known = self.shapes.integers(value)
        if known is not None:
            return known
        if value is None or self.shapes.dtype(value) not in (ir.DataType.INT64, ir.DataType.INT32):
            return None
        array: np.ndarray[Any, Any] | None = self.constants.get(value)
        return None if array is None or array.size > 64 else tuple(int(k) for k in array.reshape(-1))

    def static_integers(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """The same where every element is a plain number, else None."""
        known = self.integers(value)
        if known is None:
            return None
        plain = tuple(k for k in known if isinstance(k, int))
        return plain if len(plain) == len(known) else None
