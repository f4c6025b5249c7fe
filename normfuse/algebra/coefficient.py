"""Coefficients: a float64 number, or an array with size 1 wherever it does not vary.

Two are the same when they agree to 2^-40: a difference below that is a rounding of float64, one above it is
another number, so x - 0.999995*mean(x) is no centring.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Coefficient = float | Array

TOLERANCE = 2.0**-40


def simplified(coefficient: Coefficient) -> Coefficient:
    """A number for an array whose elements are all the same."""
    if not isinstance(coefficient, float) and isinstance(coefficient, np.ndarray):
        first = coefficient.flat[0] if coefficient.size else 0.0
        if coefficient.size == 1 or bool((coefficient == first).all()):
            return float(first)
    return coefficient


def is_zero(coefficient: Coefficient, scale: Coefficient = 0.0) -> bool:
    """Whether a coefficient is nothing but rounding, next to operands of magnitude `scale`."""
    if not isinstance(coefficient, np.ndarray) and not isinstance(scale, np.ndarray):
        return abs(coefficient) <= TOLERANCE * abs(scale)
    return bool(np.all(np.abs(coefficient) <= TOLERANCE * np.abs(scale)))


def is_at_least(coefficient: Coefficient, number: float) -> bool:
    """Whether a coefficient is nowhere below a number."""
    if isinstance(coefficient, np.ndarray):
        return bool((coefficient >= number).all())
    return coefficient >= number


def is_above_zero(coefficient: Coefficient) -> bool:
    """Whether a coefficient is above zero everywhere."""
    if isinstance(coefficient, np.ndarray):
        return bool((coefficient > 0).all())
    return coefficient > 0


def agree(a: Coefficient, b: Coefficient) -> bool:
    """Whether two coefficients are the same number, or the same array, to 2^-40."""
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))
    if np.ndim(a) and np.ndim(b) and np.ndim(a) != np.ndim(b):
        return False
    return bool(np.all(np.abs(a - b) <= TOLERANCE * np.maximum(np.abs(a), np.abs(b))))


def coefficient_axes(coefficient: Coefficient) -> frozenset[int]:
    """The axes of the frame along which a coefficient varies."""
    if not isinstance(coefficient, np.ndarray):
        return frozenset()
    return frozenset(k for k, n in enumerate(coefficient.shape) if n != 1)


def larger(a: Coefficient, b: Coefficient) -> Coefficient:
    """The larger magnitude, element by element."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(np.abs(a), np.abs(b))
    return max(abs(a), abs(b))


def raised(coefficient: Coefficient, exponent: int | Fraction) -> Coefficient:
    """A coefficient to a rational power, element by element."""
    if not isinstance(coefficient, np.ndarray) and coefficient == 1:
        return coefficient
    if exponent == Fraction(1, 2):
        return np.sqrt(coefficient) if np.ndim(coefficient) else float(np.sqrt(coefficient))
    raised = np.asarray(coefficient, dtype=np.float64) ** float(exponent)
    return raised if np.ndim(coefficient) else float(raised)
