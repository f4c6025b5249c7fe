"""What a polynomial is worth: its atoms evaluated in float64, against what ONNX's operators compute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from normfuse.algebra.atoms import (
    Atom,
    Base,
    Clamp,
    Magnitude,
    Mean,
    Monomial,
    Opaque,
    Polynomial,
    Power,
    Size,
)
from normfuse.algebra.frame import Frame, Traced
from normfuse.algebra.refinement import Layout

Array = np.ndarray[Any, Any]


class Evaluation:
    """Polynomials of one frame at one point.

    base: the value that the walk started from. opaque: arrays of run-time values. sizes: by symbol.
    Every result has one dimension for each axis of the frame, with size 1 where it does not vary.
    """

    def __init__(
        self,
        frame: Frame,
        base: Array,
        opaque: Mapping[Any, Array] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.frame = frame
        self.opaque, self.sizes = opaque or {}, sizes or {}
        self.shape = tuple(n if isinstance(n, int) else self.sizes[n] for n in frame.sizes)
        self.base = self._in_frame(base, frame.base_view.layout)

    def _in_frame(self, array: Array, layout: Layout) -> Array:
        """An array whose dimensions hold these axes, with one dimension for each axis of the frame."""
        axes = [axis for group in layout for axis in group]
        split = array.reshape([self.shape[axis] for axis in axes])
        sizes = [self.shape[k] if k in axes else 1 for k in range(len(self.shape))]
        return split.transpose(np.argsort(axes)).reshape(sizes) if axes else split.reshape(sizes)

    def polynomial(self, p: Polynomial) -> Array:
        """The sum of its terms."""
        total = np.zeros((1,) * len(self.shape))
        for monomial, coefficient in p.items():
            total = total + coefficient * self._monomial(monomial)
        return total

    def _monomial(self, monomial: Monomial) -> Array:
        product = np.ones((1,) * len(self.shape))
        for number, exponent in monomial:
            product = product * np.power(self._atom(self.frame.algebra.atoms[number]), float(exponent))
        return product

    def _atom(self, atom: Atom) -> Array:
        if isinstance(atom, Base):
            return self.base
        if isinstance(atom, Mean):
            inner = self._monomial(atom.of)
            full = [self.shape[k] if k in atom.axes else n for k, n in enumerate(inner.shape)]
            return np.mean(np.broadcast_to(inner, full), axis=tuple(atom.axes), keepdims=True)
        if isinstance(atom, Power):
            return self.polynomial(atom.of)
        if isinstance(atom, Clamp):
            return np.maximum(self.polynomial(atom.of), atom.least)
        if isinstance(atom, Magnitude):
            return np.abs(self._atom(self.frame.algebra.atoms[atom.of]))
        if isinstance(atom, Opaque):
            return self._opaque(atom)
        assert isinstance(atom, Size)
        return np.full((1,) * len(self.shape), float(self.sizes[atom.symbol]))

    def _opaque(self, atom: Opaque) -> Array:
        """A run-time operand; its key says which axes lie in each of its dimensions."""
        value, lies = atom.key  # type: ignore[misc]
        return self._in_frame(self.opaque[value], lies)

    def value(self, traced: Traced) -> Array:
        """A value of the walk, its dimensions where its layout says that they are."""
        axes = [axis for group in traced.layout for axis in group]
        assert len(set(axes)) == len(axes), "an axis lies in two places"
        found = self.polynomial(traced.polynomial)
        assert all(n == 1 or k in axes for k, n in enumerate(found.shape)), "it varies outside of its layout"
        full = [self.shape[k] if k in axes else 1 for k in range(len(self.shape))]
        order = axes + [k for k in range(len(full)) if k not in axes]
        moved = np.broadcast_to(found, full).transpose(order)
        return moved.reshape([math.prod(self.shape[k] for k in group) for group in traced.layout])
