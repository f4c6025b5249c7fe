"""Polynomials as people write them, for those who ask what a value computes.

    a*x*(mean[-1](x^2) - mean[-1](x)^2 + 1e-05)^(-1/2) + b      a: 768 constants, b: 768 constants

x is the base value, mean[…] is over the base's axes counted from its end, a letter is an array of constants,
max(…, c) a clamp, |…| a magnitude, and a name in quotes another run-time value.
"""

from __future__ import annotations

import string

import numpy as np
import onnx_ir as ir

from normfuse.algebra.atoms import (
    ONE,
    Base,
    Clamp,
    Exponent,
    Magnitude,
    Mean,
    Monomial,
    Opaque,
    Polynomial,
    Power,
    Size,
)
from normfuse.algebra.coefficient import Array, Coefficient, agree
from normfuse.algebra.frame import Frame

_LETTERS = string.ascii_lowercase[: string.ascii_lowercase.index("x")]


def written(frame: Frame, p: Polynomial) -> str:
    """A polynomial of a frame as one line of text, with a legend where it holds arrays of constants."""
    writer = _Writer(frame)
    text = writer.polynomial(p)
    legend = ", ".join(f"{writer.letter(k)}: {a.size} constants" for k, a in enumerate(writer.arrays))
    return f"{text}      {legend}" if legend else text


class _Writer:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.arrays: list[Array] = []

    def letter(self, number: int) -> str:
        return _LETTERS[number] if number < len(_LETTERS) else f"c{number}"

    def polynomial(self, p: Polynomial) -> str:
        terms = [self._term(monomial, coefficient) for monomial, coefficient in p.items()] or ["0"]
        return terms[0] + "".join(f" - {t[1:]}" if t.startswith("-") else f" + {t}" for t in terms[1:])

    def _term(self, monomial: Monomial, coefficient: Coefficient) -> str:
        factors = [self._factor(atom, exponent) for atom, exponent in monomial]
        number = self._number(coefficient)
        if monomial == ONE:
            return number
        if number in ("1", "-1"):
            return number[:-1] + "*".join(factors)
        return "*".join([number, *factors])

    def _number(self, coefficient: Coefficient) -> str:
        """A number, or the letter of an array; the same array with the other sign has the same letter."""
        if not isinstance(coefficient, np.ndarray):
            single = np.float32(coefficient)
            return str(single).removesuffix(".0") if float(single) == coefficient else f"{coefficient:.15g}"
        for k, known in enumerate(self.arrays):
            for sign, array in (("", coefficient), ("-", -coefficient)):
                if known.shape == array.shape and agree(known, array):
                    return sign + self.letter(k)
        self.arrays.append(coefficient)
        return self.letter(len(self.arrays) - 1)

    def _factor(self, number: int, exponent: Exponent) -> str:
        text = self._atom(number)
        if exponent == 1:
            return text
        plain = exponent.denominator == 1 and exponent > 0
        return f"{text}^{exponent}" if plain else f"{text}^({exponent})"

    def _atom(self, number: int) -> str:
        atom = self.frame.algebra.atoms[number]
        if isinstance(atom, Base):
            return "x"
        if isinstance(atom, Mean):
            return f"mean[{self._axes(atom.axes)}]({self._term(atom.of, 1.0)})"
        if isinstance(atom, Power):
            return f"({self.polynomial(atom.of)})"
        if isinstance(atom, Clamp):
            return f"max({self.polynomial(atom.of)}, {self._number(atom.least)})"
        if isinstance(atom, Magnitude):
            return f"|{self._atom(atom.of)}|"
        return f"size({atom.symbol})" if isinstance(atom, Size) else _opaque(atom)

    def _axes(self, axes: frozenset[int]) -> str:
        """Axes of the frame as dimensions of the base, counted from its end."""
        layout, found = self.frame.base_view.layout, []
        for position, group in enumerate(layout):
            inside = axes.intersection(group)
            if inside:
                found.append(f"{position - len(layout)}{'' if len(inside) == len(group) else ' in part'}")
        return ",".join(found)


def _opaque(atom: Opaque) -> str:
    value = atom.key[0] if isinstance(atom.key, tuple) else atom.key
    return repr(value.name) if isinstance(value, ir.Value) and value.name else "?"
