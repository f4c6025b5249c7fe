"""Shapes of every value, static or symbolic, and what small integer tensors hold.

A dimension is an `int` or a symbol (`str`, perhaps an expression such as "2*S + 1"). Two equal symbols are
provably the same number; two different ones prove nothing. Dimensions without a name, or with a placeholder
such as "?" or "-1" that exporters write for every unknown, each become a symbol of their own, so an unknown
never equals another.

Shapes of inner values are inferred afresh: what a file claims of them is only used for operators that the
inference does not know. The model itself is left as it was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from normfuse.graph import by_library, inference_rules, remembered
from normfuse.graph.known import Dim as Dim
from normfuse.graph.known import Known
from normfuse.graph.scopes import graphs


class Shapes:
    """The inferred facts about one model's values.

    of(value): dimensions, or None when not even the rank is known.
    dtype(value): element type, or None.
    integers(value): what a small integer tensor holds, each element an int or a symbol, flattened.
    """

    def __init__(self, found: Mapping[ir.Value, Known]) -> None:
        self._shapes = {v: known.dims for v, known in found.items() if known.dims is not None}
        self._dtypes = {v: known.dtype for v, known in found.items() if known.dtype is not None}
        self._integers = {v: known.integers for v, known in found.items() if known.integers is not None}

    def of(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The dimensions of `value`."""
        return None if value is None else self._shapes.get(value)

    def rank(self, value: ir.Value | None) -> int | None:
        """The number of dimensions of `value`."""
        shape = self.of(value)
        return None if shape is None else len(shape)

    def dtype(self, value: ir.Value | None) -> ir.DataType | None:
        """The element type of `value`."""
        if value is None:
            return None
        known = self._dtypes.get(value)
        return value.dtype if known is None else known

    def integers(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The elements of a small integer tensor that shape arithmetic computes."""
        return None if value is None else self._integers.get(value)

    def set(self, value: ir.Value, shape: Iterable[Dim], dtype: ir.DataType | None) -> None:
        """State the facts of a value that a rewrite has made."""
        self._shapes[value] = tuple(shape)
        if dtype is not None:
            self._dtypes[value] = dtype

    def same_as(self, new: ir.Value, old: ir.Value) -> None:
        """Let `new`, which replaces `old`, have its facts."""
        for table in (self._shapes, self._dtypes, self._integers):
            if old in table:
                table[new] = table[old]  # type: ignore[assignment]


def infer(model: ir.Model, scopes: Sequence[ir.Graph] = ()) -> Shapes:
    """Infer the shapes of all values of `model`, its subgraphs included, without changing it.

    scopes: all graphs of the model, where they are at hand.
    """
    inference_rules.register()
    found = remembered.infer(model, scopes or graphs(model))
    if found is None:
        return Shapes(by_library.infer(model))
    return Shapes(by_library.go_on(model, found.known) if found.failed else found.known)
