"""What an operator of the algebra may ask: constants, shapes, attributes, and operands as polynomials.

An operand is traced (a value of the walk), constant (read into the frame), or another run-time value. The
last is an opaque atom, and only taken where the polynomial already holds a Mean: without that bound a walk
would wander down every residual connection.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir

from normfuse.algebra.atoms import Exponent, Mean, Opaque, Polynomial, Size
from normfuse.algebra.frame import End, Frame, Traced
from normfuse.algebra.refinement import Layout, product
from normfuse.graph.facts import Facts
from normfuse.graph.shapes import Dim

MAX_OPAQUE = 3
_EXACT_FOR_SIZES = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.DOUBLE, ir.DataType.FLOAT)


@dataclass(frozen=True)
class Context:
    """One walk's surroundings: the facts of the graph, the frame of the base, the values traced so far."""

    facts: Facts
    frame: Frame
    traced: Mapping[ir.Value, Traced]

    def get(self, value: ir.Value | None) -> Traced | None:
        """The traced value, or None."""
        return None if value is None else self.traced.get(value)

    def first(self, node: ir.Node) -> Traced:
        """The traced value that a unary operator reads."""
        value = node.inputs[0]
        assert value is not None
        return self.traced[value]

    def constant(self, value: ir.Value | None) -> np.ndarray[Any, Any] | None:
        """A constant operand as it is stored."""
        return self.facts.constants.get(value)

    def exact(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A constant operand in float64; 1/N, N and N/(N-1) are read as these numbers.

        A number is taken for such a ratio only if it equals it rounded to the constant's own type, and N is
        the size of something that this walk has reduced over.
        """
        values: np.ndarray[Any, Any] = np.asarray(array, dtype=np.float64)
        if values.size != 1 or array.dtype.kind not in "fV":
            return values
        stored = float(values.reshape(-1)[0])
        for n in self.frame.reduced:
            ratio = _ratio_stored_as(stored, array.dtype, n)
            if ratio is not None:
                return np.full(values.shape, ratio)
        return values

    def result(
        self,
        node: ir.Node,
        polynomial: Polynomial | None,
        layout: Layout,
        shape: tuple[Dim, ...] | None = None,
    ) -> Traced | End:
        """The operator's first output, or End when the algebra could not say what it is."""
        if polynomial is None:
            return End("", "not exact, or too many terms")
        if shape is None:
            shape = self.frame.shape_of(layout)
        return Traced(polynomial, layout, shape, self.first_traced(node).dtype)

    def first_traced(self, node: ir.Node) -> Traced:
        """The first operand that is a value of the walk."""
        return next(t for v in node.inputs if (t := self.get(v)) is not None)

    def size(self, dims: tuple[Dim, ...]) -> Polynomial:
        """The product of dimensions: a number times the lengths of the dynamic ones."""
        number, symbols = product(dims)
        powers: dict[int, Exponent] = {}
        for symbol in symbols:
            atom = self.frame.algebra.number(Size(symbol))
            powers[atom] = powers.get(atom, 0) + 1
        return {tuple(sorted(powers.items())): float(number)}

    def scalar_integer(self, value: ir.Value) -> Polynomial | None:
        """A number that shape arithmetic computes, through a Cast: the N of a mean written as a sum."""
        node = value.producer()
        while node is not None and node.op_type in ("Cast", "Identity") and node.inputs[0] is not None:
            if self.facts.shapes.dtype(value) not in _EXACT_FOR_SIZES:
                return None
            value = node.inputs[0]
            node = value.producer()
        known = self.facts.shapes.integers(value)
        if known is None or len(known) != 1:
            return None
        return self.size(known)

    def opaque(self, value: ir.Value, layout: Layout, beside: Polynomial) -> tuple[Polynomial, Layout] | End:
        """A run-time operand as an atom of its own, where it may be one, and the layout of the result."""
        algebra = self.frame.algebra
        shape = self.facts.shapes.of(value)
        if not algebra.contains(beside, Mean) or shape is None:
            return End()
        if sum(isinstance(atom, Opaque) for atom in algebra.atoms) >= MAX_OPAQUE:
            return End("too-complex", "too many run-time operands")
        extended = self.frame.extended(layout, shape)
        if isinstance(extended, End):
            return extended
        dims = zip(extended[len(extended) - len(shape) :], shape, strict=True)
        lies = tuple(() if n == 1 else group for group, n in dims)
        axes = frozenset(axis for group in lies for axis in group)
        return algebra.of_atom(Opaque((value, lies), axes)), extended


@functools.lru_cache(maxsize=4096)
def _ratio_stored_as(stored: float, dtype: np.dtype[Any], n: int) -> float | None:
    """The ratio of n or n - 1 to 1 or each other that is `stored` once it is rounded to `dtype`."""
    for p, q in ((1, n), (n, n - 1), (n - 1, n), (1, n - 1)):
        if q > 0 and np.float64(np.asarray(p / q).astype(dtype)) == stored:
            return float(Fraction(p, q))
    return None


Operator = Callable[[Context, ir.Node], Traced | End]
