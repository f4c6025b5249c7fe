"""What shape inference knows of a value: one object, never changed, for all of which the same is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

Dim = int | str


@dataclass(frozen=True, eq=False)
class Known:
    """Shape and type of a value, and what shape arithmetic found it to hold; None where unknown.

    dims, dtype, integers: the same without the classes of onnx-ir.
    """

    shape: ir.Shape | None
    type: ir.TypeProtocol | None
    contents: tuple[int | ir.SymbolicDim, ...] | None = None
    dims: tuple[Dim, ...] | None = field(init=False)
    dtype: ir.DataType | None = field(init=False)
    integers: tuple[Dim, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        dims = None if self.shape is None else tuple(map(_plain, self.shape))
        integers = None if self.contents is None else tuple(map(_plain, self.contents))
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "dtype", None if self.type is None else self.type.dtype)
        object.__setattr__(self, "integers", integers)


def _plain(dim: int | str | ir.SymbolicDim) -> Dim:
    """A dimension by value; a symbolic expression that turned out to be a number, as that number."""
    if isinstance(dim, int):
        return dim
    text = str(dim)
    return int(text) if text.isdecimal() else text
