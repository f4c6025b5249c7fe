"""What a file says of its values, and what of it is believed before anything is inferred.

Believed: shapes of graph inputs and of what operators of other domains compute, types, and the tensors of
initializers that no caller can override. Shapes of all other values are inferred afresh. A dimension without
a name, or with a placeholder such as "?" or "-1" that exporters write for every unknown, is given a name of
its own, so an unknown never equals another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import onnx_ir as ir

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def overridable(model: ir.Model) -> list[ir.Value]:
    """Inputs with a default: of what a caller may override, no more is known than what is declared."""
    if model.ir_version is not None and model.ir_version < 4:
        return []
    return [v for v in model.graph.inputs if v.is_initializer()]


def static(tensor: ir.TensorProtocol) -> ir.Shape:
    """The shape of a tensor, as a new object."""
    return ir.Shape([d if isinstance(d, int) else d.value for d in tensor.shape])


def named(shape: ir.Shape, names: Iterator[str]) -> ir.Shape:
    """A shape, each dimension of which is a number or has a name: its own, or one of `names`."""
    return ir.Shape([_named(d, names) for d in shape])


def _named(dim: int | ir.SymbolicDim, names: Iterator[str]) -> int | str:
    if isinstance(dim, int):
        return dim if dim >= 0 else next(names)
    return dim.value if dim.value is not None and _IDENTIFIER.fullmatch(dim.value) else next(names)


def unused_names(taken: Iterable[str]) -> Iterator[str]:
    """Names that are not among those."""
    known, k = frozenset(taken), 0
    while True:
        if (name := f"unknown_{k}") not in known:
            yield name
        k += 1


def symbols(shapes: Iterable[ir.Shape | None]) -> set[str]:
    """The names of dimensions in these shapes."""
    return {str(d) for shape in shapes if shape is not None for d in shape if not isinstance(d, int)}
