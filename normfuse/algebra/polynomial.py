"""Polynomials with rational exponents over atoms: what a chain of operators computes, in one normal form.

    polynomial  = sum of coefficient * monomial          2*x^2 - Mean(x)^2 + 1e-5
    monomial    = product of atoms to rational powers    x * Power(v)^(-1/2)
    coefficient = a float64 number, or an array of the frame's rank with size 1 wherever it does not vary

    atoms   Base             the value that the walk starts from
            Mean(m, axes)    the mean of a monomial over axes of the frame
            Power(p)         a polynomial of several terms that stands under a power
            Clamp(p, c)      max(p, c)
            Magnitude(a)     |a|, what is left of (a^2)^(1/2)
            Opaque(key)      any other run-time value
            Size(symbol)     the length of a dynamic dimension

Two spellings of the variance are one polynomial, with no rule that says so, because Mean is linear:
Mean((x - Mean(x))^2) expands to Mean(x^2) - Mean(x)^2.

Nothing here knows ONNX. Every operation returns None where the result would not be exact for all real
inputs (NaN and infinity where the operators give them included), or would be too large to be worth it:

- a^p * a^q is a^(p+q) only if p and q have one sign, or a is known to be positive: (x*x)/x is NaN at 0;
- (p*q)^(1/2) is p^(1/2) * q^(1/2) only where both are known not to be negative; (x^2)^(1/2) is |x|.

Coefficients are the same when they agree to 2^-40; a difference below that is a rounding of float64.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Coefficient = float | Array
Exponent = int | Fraction
Monomial = tuple[tuple[int, Exponent], ...]
Polynomial = Mapping[Monomial, Coefficient]

ONE: Monomial = ()
TOLERANCE = 2.0**-40
MAX_TERMS = 24
MAX_EXPONENT = 8


@dataclass(frozen=True)
class Base:
    """The value that the walk starts from; `axes` are those along which it has more than one element."""

    axes: frozenset[int]


@dataclass(frozen=True)
class Mean:
    """The mean of a monomial over axes."""

    of: Monomial
    axes: frozenset[int]


@dataclass(frozen=True, eq=False)
class Power:
    """A sum that stands under a power."""

    of: Polynomial


@dataclass(frozen=True, eq=False)
class Clamp:
    """max(of, least)."""

    of: Polynomial
    least: float


@dataclass(frozen=True)
class Magnitude:
    """The absolute value of an atom."""

    of: int


@dataclass(frozen=True)
class Opaque:
    """A run-time value that is not traced, and the axes along which it varies."""

    key: Hashable
    axes: frozenset[int]


@dataclass(frozen=True)
class Size:
    """The length of a dynamic dimension: positive (where it is 0, no element is left to be wrong)."""

    symbol: str


Atom = Base | Mean | Power | Clamp | Magnitude | Opaque | Size


def simplified(coefficient: Coefficient) -> Coefficient:
    """A number for an array whose elements are all the same."""
    if isinstance(coefficient, np.ndarray):
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


def constant(coefficient: Coefficient) -> Polynomial:
    """The polynomial of a constant."""
    return {ONE: simplified(coefficient)}


def constant_of(p: Polynomial) -> Coefficient | None:
    """The constant that a polynomial is, or None when it contains an atom."""
    if not p:
        return 0.0
    return p[ONE] if len(p) == 1 and ONE in p else None


class Algebra:
    """Polynomials over one set of atoms.

    Atoms are numbered; equal ones have one number, so monomials compare by value. Sums under a power are
    recognised by comparing them term by term, never by a hash of rounded coefficients.
    """

    def __init__(self, base_axes: Iterable[int]) -> None:
        self.atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}
        # An atom only refers to earlier ones, so what is known of it is found once, when it is made; found
        # anew each time, it would cost as much as the tree of all atoms in it, which doubles at every step.
        self._axes: list[frozenset[int]] = []
        self._kinds: list[frozenset[type]] = []
        self._nonnegative: list[bool] = []
        self._positive: list[bool] = []
        self._finite: list[bool] = []
        self.base: int = self.number(Base(frozenset(base_axes)))

    # -- atoms ---------------------------------------------------------------------------------------------

    def number(self, atom: Atom) -> int:
        """The number of an atom; sums and clamps are looked up by their terms."""
        if isinstance(atom, Power | Clamp):
            for k, other in enumerate(self.atoms):
                if type(other) is type(atom) and self._same_compound(other, atom):
                    return k
        elif atom in self._numbers:
            return self._numbers[atom]
        self.atoms.append(atom)
        if not isinstance(atom, Power | Clamp):
            self._numbers[atom] = len(self.atoms) - 1
        self._axes.append(self._find_axes(atom))
        self._kinds.append(frozenset({type(atom)}).union(*(self._kinds[n] for n in self._parts(atom))))
        self._nonnegative.append(self._find_nonnegative(atom))
        self._positive.append(self._find_positive(atom))
        self._finite.append(self._find_finite(atom))
        return len(self.atoms) - 1

    def _same_compound(self, a: Atom, b: Atom) -> bool:
        if isinstance(a, Clamp) and isinstance(b, Clamp) and a.least != b.least:
            return False
        assert isinstance(a, Power | Clamp)
        assert isinstance(b, Power | Clamp)
        return same(a.of, b.of)

    def of_atom(self, atom: Atom) -> Polynomial:
        """The polynomial of a single atom."""
        return {((self.number(atom), 1),): 1.0}

    def axes(self, p: Polynomial) -> frozenset[int]:
        """The axes along which a polynomial varies."""
        found: frozenset[int] = frozenset()
        for monomial, coefficient in p.items():
            found |= coefficient_axes(coefficient) | self.monomial_axes(monomial)
        return found

    def monomial_axes(self, monomial: Monomial) -> frozenset[int]:
        """The axes along which a monomial varies."""
        return frozenset().union(*(self.atom_axes(atom) for atom, _ in monomial))

    def atom_axes(self, number: int) -> frozenset[int]:
        """The axes along which an atom varies."""
        return self._axes[number]

    def _find_axes(self, atom: Atom) -> frozenset[int]:
        if isinstance(atom, Base | Opaque):
            return atom.axes
        if isinstance(atom, Mean):
            return self.monomial_axes(atom.of) - atom.axes
        if isinstance(atom, Magnitude):
            return self.atom_axes(atom.of)
        return self.axes(atom.of) if isinstance(atom, Power | Clamp) else frozenset()

    def contains(self, p: Polynomial, kind: type) -> bool:
        """Whether an atom of a kind occurs in a polynomial, at any depth."""
        return any(kind in self._kinds[n] for monomial in p for n, _ in monomial)

    def atoms_in(self, p: Polynomial) -> set[int]:
        """All atoms of a polynomial, those inside other atoms included."""
        found: set[int] = set()
        queue = [n for monomial in p for n, _ in monomial]
        while queue:
            number = queue.pop()
            if number not in found:
                found.add(number)
                queue.extend(self._parts(self.atoms[number]))
        return found

    def _parts(self, atom: Atom) -> Iterator[int]:
        """The atoms that an atom is made of."""
        if isinstance(atom, Mean):
            yield from (n for n, _ in atom.of)
        elif isinstance(atom, Power | Clamp):
            yield from (n for monomial in atom.of for n, _ in monomial)
        elif isinstance(atom, Magnitude):
            yield atom.of

    # -- what is known of signs ----------------------------------------------------------------------------

    def is_nonnegative(self, p: Polynomial) -> bool:
        """Whether a polynomial is known never to be negative.

        By signs, and by Jensen's inequality: Mean(m^2) - Mean(m)^2 >= 0.
        """
        rest = dict(p)
        for monomial, coefficient in p.items():
            if is_at_least(coefficient, 0):
                continue
            partner = self._jensen_partner(monomial)
            if partner is None or partner not in rest:
                return False
            left = rest[partner] + coefficient
            if not (is_at_least(left, 0) or is_zero(left, coefficient)):
                return False
            rest[partner] = left
            del rest[monomial]
        return all(self._monomial_nonnegative(m) for m in rest)

    def _jensen_partner(self, monomial: Monomial) -> Monomial | None:
        if len(monomial) != 1 or monomial[0][1] != 2:
            return None
        atom = self.atoms[monomial[0][0]]
        if not isinstance(atom, Mean):
            return None
        square = tuple((n, 2 * e) for n, e in atom.of)
        number = self._numbers.get(Mean(square, atom.axes))
        return None if number is None else ((number, 1),)

    def is_positive(self, p: Polynomial) -> bool:
        """Whether a polynomial is known to be above zero everywhere."""
        if not p or not self.is_nonnegative(p):
            return False
        if ONE in p and is_above_zero(p[ONE]):
            return True
        return all(is_above_zero(c) and all(self.atom_positive(n) for n, _ in m) for m, c in p.items())

    def _monomial_nonnegative(self, monomial: Monomial) -> bool:
        return all(_is_even(e) or self.atom_nonnegative(n) for n, e in monomial)

    def atom_nonnegative(self, number: int) -> bool:
        """Whether an atom is known never to be negative."""
        return self._nonnegative[number]

    def _find_nonnegative(self, atom: Atom) -> bool:
        if isinstance(atom, Mean):
            return self._monomial_nonnegative(atom.of)
        if isinstance(atom, Clamp):
            return atom.least >= 0 or self.is_nonnegative(atom.of)
        return isinstance(atom, Magnitude | Size) or (
            isinstance(atom, Power) and self.is_nonnegative(atom.of)
        )

    def atom_positive(self, number: int) -> bool:
        """Whether an atom is known to be above zero."""
        return self._positive[number]

    def _find_positive(self, atom: Atom) -> bool:
        if isinstance(atom, Mean):
            return bool(atom.of) and all(self.atom_positive(n) for n, _ in atom.of)
        if isinstance(atom, Clamp):
            return atom.least > 0 or self.is_positive(atom.of)
        return isinstance(atom, Size) or (isinstance(atom, Power) and self.is_positive(atom.of))

    # -- arithmetic ----------------------------------------------------------------------------------------

    def add(self, p: Polynomial, q: Polynomial) -> Polynomial | None:
        """p + q."""
        total = dict(p)
        for monomial, coefficient in q.items():
            if monomial not in total:
                total[monomial] = coefficient
                continue
            old = total[monomial]
            new = old + coefficient
            if is_zero(new, _larger(old, coefficient)):
                if not self._is_finite(monomial):
                    return None  # NaN minus itself is NaN, and not nothing
                del total[monomial]
            else:
                total[monomial] = simplified(new)
        return total if len(total) <= MAX_TERMS else None

    def _is_finite(self, monomial: Monomial) -> bool:
        """Whether a monomial is a finite number for all finite inputs."""
        return all(
            self._finite[n]
            and (self._positive[n] or (e > 0 and (e.denominator == 1 or self._nonnegative[n])))
            for n, e in monomial
        )

    def _find_finite(self, atom: Atom) -> bool:
        if isinstance(atom, Mean):
            return self._is_finite(atom.of)
        return not isinstance(atom, Power | Clamp) or all(self._is_finite(m) for m in atom.of)

    def scale(self, p: Polynomial, by: Coefficient) -> Polynomial:
        """p multiplied by a constant."""
        return {m: simplified(c * by) for m, c in p.items()}

    def multiply(self, p: Polynomial, q: Polynomial) -> Polynomial | None:
        """p * q, or None where powers of one atom must not be merged."""
        if len(p) * len(q) > MAX_TERMS:
            return None
        total: Polynomial | None = {}
        for m, a in p.items():
            for n, b in q.items():
                product = self._product(m, n)
                if product is None or total is None:
                    return None
                total = self.add(total, self.scale(product, a * b))
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
            return _whole(a + b) if -MAX_EXPONENT <= a + b <= MAX_EXPONENT else None
        return None

    def _normal(self, powers: dict[int, Exponent]) -> Polynomial | None:
        """The polynomial of a product: whole powers of sums are expanded, even powers of |a| are of a."""
        for atom, exponent in powers.items():
            known = self.atoms[atom]
            if isinstance(known, Power) and exponent.denominator == 1 and exponent > 0:
                rest = self._normal({a: e for a, e in powers.items() if a != atom})
                expanded = self.power(known.of, exponent)
                return None if rest is None or expanded is None else self.multiply(rest, expanded)
            if isinstance(known, Magnitude) and _is_even(exponent):
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
        return {((self.number(Power(p)), exponent),): 1.0}

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
                    if not _is_even(e):
                        return None
                    target = atom if _is_even(e * exponent) else self.number(Magnitude(atom))
            powers[target] = _whole(e * exponent)
        result = self._normal(powers)
        return None if result is None else self.scale(result, _raised(coefficient, exponent))

    # -- means and clamps ----------------------------------------------------------------------------------

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


def same(p: Polynomial, q: Polynomial) -> bool:
    """Whether two polynomials over one algebra have the same terms, coefficients to 2^-40."""
    return p.keys() == q.keys() and all(agree(c, q[m]) for m, c in p.items())


def _larger(a: Coefficient, b: Coefficient) -> Coefficient:
    """The larger magnitude, element by element."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(np.abs(a), np.abs(b))
    return max(abs(a), abs(b))


def _whole(exponent: Exponent) -> Exponent:
    """A whole exponent as an int: monomials are compared and hashed all the time, and a Fraction is slow."""
    return exponent.numerator if exponent.denominator == 1 else exponent


def _is_even(exponent: Exponent) -> bool:
    return exponent.denominator == 1 and exponent.numerator % 2 == 0


def _raised(coefficient: Coefficient, exponent: Exponent) -> Coefficient:
    if not isinstance(coefficient, np.ndarray) and coefficient == 1:
        return coefficient
    if exponent == Fraction(1, 2):
        return np.sqrt(coefficient) if np.ndim(coefficient) else float(np.sqrt(coefficient))
    raised = np.asarray(coefficient, dtype=np.float64) ** float(exponent)
    return raised if np.ndim(coefficient) else float(raised)
