"""Polynomials with rational exponents over atoms: what a chain of operators computes, in one normal form.

    polynomial  = sum of coefficient * monomial          2*x^2 - Mean(x)^2 + 1e-5
    monomial    = product of atoms to rational powers    x * Power(v)^(-1/2)

Two spellings of the variance are one polynomial, with no rule that says so, because Mean is linear:
Mean((x - Mean(x))^2) expands to Mean(x^2) - Mean(x)^2.

Nothing here knows ONNX. Every operation returns None where the result would not be exact for all real
inputs (NaN and infinity where the operators give them included), or would be too large to be worth it:

- a^p * a^q is a^(p+q) only if p and q have one sign, or a is known to be positive: (x*x)/x is NaN at 0;
- (p*q)^(1/2) is p^(1/2) * q^(1/2) only where both are known not to be negative; (x^2)^(1/2) is |x|.
"""

from __future__ import annotations

import copy

import numpy as np

from normfuse.algebra.atoms import (
    ONE,
    Atoms,
    Clamp,
    Exponent,
    Magnitude,
    Mean,
    Monomial,
    Polynomial,
    Power,
    as_whole,
    is_even,
)
from normfuse.algebra.coefficient import (
    Coefficient,
    coefficient_axes,
    is_at_least,
    is_zero,
    larger,
    raised,
    simplified,
)

MAX_TERMS = 24
MAX_EXPONENT = 8


def constant(coefficient: Coefficient) -> Polynomial:
    """The polynomial of a constant."""
    return {ONE: simplified(coefficient)}


def constant_of(p: Polynomial) -> Coefficient | None:
    """The constant that a polynomial is, or None when it contains an atom."""
    if not p:
        return 0.0
    return p[ONE] if len(p) == 1 and ONE in p else None


class Algebra(Atoms):
    """The arithmetic of polynomials over one set of atoms."""

    def copy(self, count: int) -> Algebra:
        """The same algebra as it was when it had `count` atoms."""
        other = copy.copy(self)
        for name in ("atoms", "_axes", "_kinds", "_expands", "_nonnegative", "_positive", "_finite"):
            setattr(other, name, getattr(self, name)[:count])
        other._numbers = {atom: k for atom, k in self._numbers.items() if k < count}
        return other

    def add(self, p: Polynomial, q: Polynomial) -> Polynomial | None:
        """p + q."""
        total = dict(p)
        return total if self._include(total, q) else None

    def _include(self, total: dict[Monomial, Coefficient], q: Polynomial) -> bool:
        """Add q to a sum in place; whether the sum could be formed."""
        for monomial, coefficient in q.items():
            if monomial not in total:
                total[monomial] = coefficient
                continue
            old = total[monomial]
            new = old + coefficient
            if is_zero(new, larger(old, coefficient)):
                if not self.is_finite(monomial):
                    return False  # NaN minus itself is NaN, and not nothing
                del total[monomial]
            else:
                total[monomial] = simplified(new)
        return len(total) <= MAX_TERMS

    def scale(self, p: Polynomial, by: Coefficient) -> Polynomial:
        """p multiplied by a constant."""
        return {m: simplified(c * by) for m, c in p.items()}

    def multiply(self, p: Polynomial, q: Polynomial) -> Polynomial | None:
        """p * q, or None where powers of one atom must not be merged."""
        if len(p) * len(q) > MAX_TERMS:
            return None
        if len(q) == 1 and ONE in q:
            return self.scale(p, q[ONE])
        if len(p) == 1 and ONE in p:
            return self.scale(q, p[ONE])
        total: dict[Monomial, Coefficient] = {}
        for m, a in p.items():
            for n, b in q.items():
                product = self._product(m, n)
                if product is None or not self._include(total, self.scale(product, a * b)):
                    return None
        return total

    def _product(self, m: Monomial, n: Monomial) -> Polynomial | None:
        powers = dict(m)
        for atom, exponent in n:
            if atom in powers:
                merged = self._merged(atom, powers[atom], exponent)
                if merged is None:
                    return None
                powers[atom] = merged
            else:
                powers[atom] = exponent
        return self._normal(powers)

    def _merged(self, atom: int, a: Exponent, b: Exponent) -> Exponent | None:
        one_sign = (a > 0) == (b > 0)
        whole = a.denominator == 1 and b.denominator == 1
        if self.atom_positive(atom) or (one_sign and (whole or self.atom_nonnegative(atom))):
            return as_whole(a + b) if -MAX_EXPONENT <= a + b <= MAX_EXPONENT else None
        return None

    def _normal(self, powers: dict[int, Exponent]) -> Polynomial | None:
        """The polynomial of a product: whole powers of sums are expanded, even powers of |a| are of a."""
        for atom, exponent in powers.items():
            if not self.atom_expands(atom):
                continue
            known = self.atoms[atom]
            if isinstance(known, Power) and exponent.denominator == 1 and exponent > 0:
                rest = self._normal({a: e for a, e in powers.items() if a != atom})
                expanded = self.power(known.of, exponent)
                return None if rest is None or expanded is None else self.multiply(rest, expanded)
            if isinstance(known, Magnitude) and is_even(exponent):
                rest = self._normal({a: e for a, e in powers.items() if a != atom})
                return None if rest is None else self.multiply(rest, {((known.of, exponent),): 1.0})
        return {tuple(sorted((a, e) for a, e in powers.items() if e != 0)): 1.0}

    def power(self, p: Polynomial, exponent: Exponent) -> Polynomial | None:
        """p to a rational power other than 0."""
        if exponent == 1:
            return p
        if not p or exponent == 0 or not -MAX_EXPONENT <= exponent <= MAX_EXPONENT:
            return None
        if len(p) == 1:
            single = self._monomial_power(*next(iter(p.items())), exponent)
            if single is not None:
                return single
        if exponent.denominator == 1 and exponent > 1:
            result: Polynomial | None = p
            for _ in range(int(exponent) - 1):
                result = None if result is None else self.multiply(result, p)
            return result
        return {((self.number(Power(p)), as_whole(exponent)),): 1.0}

    def _monomial_power(
        self, monomial: Monomial, coefficient: Coefficient, exponent: Exponent
    ) -> Polynomial | None:
        whole = exponent.denominator == 1
        if not whole and not is_at_least(coefficient, 0):
            return None
        if exponent < 0 and bool(np.any(np.asarray(coefficient) == 0)):
            return None
        powers: dict[int, Exponent] = {}
        for atom, e in monomial:
            target = atom
            if not self.atom_nonnegative(atom):
                if e.denominator != 1:  # NaN below 0, which a whole power would hide
                    if (e * exponent).denominator == 1:
                        return None
                elif not whole:
                    if not is_even(e):
                        return None
                    target = atom if is_even(e * exponent) else self.number(Magnitude(atom))
            powers[target] = as_whole(e * exponent)
        result = self._normal(powers)
        return None if result is None else self.scale(result, raised(coefficient, exponent))

    def mean(self, p: Polynomial, axes: frozenset[int]) -> Polynomial | None:
        """The mean of p over axes; None where a coefficient varies along one of them."""
        total: Polynomial | None = {}
        for monomial, coefficient in p.items():
            if coefficient_axes(coefficient) & axes:
                return None
            term = self._monomial_mean(monomial, axes)
            total = None if term is None or total is None else self.add(total, self.scale(term, coefficient))
            if total is None:
                return None
        return total

    def _monomial_mean(self, monomial: Monomial, axes: frozenset[int]) -> Polynomial | None:
        inside = tuple((a, e) for a, e in monomial if self.atom_axes(a) & axes)
        outside = {a: e for a, e in monomial if not self.atom_axes(a) & axes}
        if not inside:
            return {monomial: 1.0}
        over = self.monomial_axes(inside) & axes
        if len(inside) == 1 and inside[0][1] == 1:
            nested = self.atoms[inside[0][0]]
            if isinstance(nested, Mean):
                inside, over = nested.of, nested.axes | over
        mean = self.of_atom(Mean(inside, over))
        rest = self._normal(outside)
        return None if rest is None else self.multiply(rest, mean)

    def clamp(self, p: Polynomial, least: float) -> Polynomial:
        """max(p, least)."""
        if least <= 0 and self.is_nonnegative(p):
            return p
        return self.of_atom(Clamp(p, least))
