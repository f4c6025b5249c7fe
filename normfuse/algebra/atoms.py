"""The atoms of polynomials, and what is known of them: where they vary, and their signs.

    Base             the value that the walk starts from
    Mean(m, axes)    the mean of a monomial over axes of the frame
    Power(p)         a polynomial of several terms that stands under a power
    Clamp(p, c)      max(p, c)
    Magnitude(a)     |a|, what is left of (a^2)^(1/2)
    Opaque(key)      any other run-time value
    Size(symbol)     the length of a dynamic dimension

Atoms are numbered; equal ones have one number, so monomials compare by value. Sums under a power are
recognised by comparing them term by term, never by a hash of rounded coefficients. An atom only refers to
earlier ones, so what is known of it is found once, when it is made.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from normfuse.algebra.coefficient import (
    Coefficient,
    agree,
    coefficient_axes,
    is_above_zero,
    is_at_least,
    is_zero,
)

Exponent = int | Fraction
Monomial = tuple[tuple[int, Exponent], ...]
Polynomial = Mapping[Monomial, Coefficient]

ONE: Monomial = ()


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
_COMPOUND = (Power, Clamp)


class Atoms:
    """The atoms of one set of polynomials."""

    def __init__(self, base_axes: Iterable[int]) -> None:
        self.atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}
        self._axes: list[frozenset[int]] = []
        self._kinds: list[frozenset[type]] = []
        self._expands: list[bool] = []
        self._nonnegative: list[bool] = []
        self._positive: list[bool] = []
        self._finite: list[bool] = []
        self.base: int = self.number(Base(frozenset(base_axes)))

    def number(self, atom: Atom) -> int:
        """The number of an atom; sums and clamps are looked up by their terms."""
        compound = isinstance(atom, _COMPOUND)
        if compound:
            for k, other in enumerate(self.atoms):
                if type(other) is type(atom) and self._same_compound(other, atom):
                    return k
        elif atom in self._numbers:
            return self._numbers[atom]
        self.atoms.append(atom)
        if not compound:
            self._numbers[atom] = len(self.atoms) - 1
        self._axes.append(self._find_axes(atom))
        self._kinds.append(frozenset({type(atom)}).union(*(self._kinds[n] for n in self._parts(atom))))
        self._expands.append(isinstance(atom, (Power, Magnitude)))
        self._nonnegative.append(self._find_nonnegative(atom))
        self._positive.append(self._find_positive(atom))
        self._finite.append(self._find_finite(atom))
        return len(self.atoms) - 1

    def _same_compound(self, a: Atom, b: Atom) -> bool:
        if isinstance(a, Clamp) and isinstance(b, Clamp) and a.least != b.least:
            return False
        assert isinstance(a, _COMPOUND)
        assert isinstance(b, _COMPOUND)
        return same(a.of, b.of)

    def known(self, atom: Base | Mean | Magnitude | Opaque | Size) -> int | None:
        """The number of an atom, where it has one already."""
        return self._numbers.get(atom)

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
        if len(monomial) == 1:
            return self._axes[monomial[0][0]]
        return frozenset().union(*[self._axes[atom] for atom, _ in monomial])

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
        return self.axes(atom.of) if isinstance(atom, _COMPOUND) else frozenset()

    def contains(self, p: Polynomial, kind: type) -> bool:
        """Whether an atom of a kind occurs in a polynomial, at any depth."""
        return any(kind in self._kinds[n] for monomial in p for n, _ in monomial)

    def holds(self, number: int, kind: type) -> bool:
        """Whether an atom is of a kind, or made of one that is, at any depth."""
        return kind in self._kinds[number]

    def atom_expands(self, number: int) -> bool:
        """Whether some powers of an atom are written out as what it is made of."""
        return self._expands[number]

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
        elif isinstance(atom, _COMPOUND):
            yield from (n for monomial in atom.of for n, _ in monomial)
        elif isinstance(atom, Magnitude):
            yield atom.of

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
        """The monomial c*Mean(m^2) for one that is c*Mean(m)^2, where c is known not to be negative."""
        for k, (n, e) in enumerate(monomial):
            atom = self.atoms[n]
            if e != 2 or not isinstance(atom, Mean):
                continue
            number = self._numbers.get(Mean(tuple((m, 2 * f) for m, f in atom.of), atom.axes))
            others = monomial[:k] + monomial[k + 1 :]
            if number is not None and number not in dict(others) and self._monomial_nonnegative(others):
                return tuple(sorted((*others, (number, 1))))
        return None

    def is_positive(self, p: Polynomial) -> bool:
        """Whether a polynomial is known to be above zero everywhere."""
        if not p or not self.is_nonnegative(p):
            return False
        if ONE in p and is_above_zero(p[ONE]):
            return True
        return all(is_above_zero(c) and all(self.atom_positive(n) for n, _ in m) for m, c in p.items())

    def _monomial_nonnegative(self, monomial: Monomial) -> bool:
        return all(is_even(e) or self.atom_nonnegative(n) for n, e in monomial)

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

    def is_finite(self, monomial: Monomial) -> bool:
        """Whether a monomial is a finite number for all finite inputs."""
        return all(
            self._finite[n]
            and (self._positive[n] or (e > 0 and (e.denominator == 1 or self._nonnegative[n])))
            for n, e in monomial
        )

    def _find_finite(self, atom: Atom) -> bool:
        if isinstance(atom, Mean):
            return self.is_finite(atom.of)
        return not isinstance(atom, _COMPOUND) or all(self.is_finite(m) for m in atom.of)


def same(p: Polynomial, q: Polynomial) -> bool:
    """Whether two polynomials over one algebra have the same terms, coefficients to 2^-40."""
    return p.keys() == q.keys() and all(agree(c, q[m]) for m, c in p.items())


def as_whole(exponent: Exponent) -> Exponent:
    """A whole exponent as an int, any other as the one object that stands for it.

    Monomials are compared and hashed all the time, and a Fraction is slow at both.
    """
    if exponent.denominator == 1:
        return exponent.numerator
    return _ratio(exponent.numerator, exponent.denominator)


class _Ratio(Fraction):
    """A fraction that computes its hash once."""

    _hash: int | None = None

    def __hash__(self) -> int:  # type: ignore[override]  # typeshed says that complex numbers have none
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


@functools.cache
def _ratio(numerator: int, denominator: int) -> Fraction:
    return _Ratio(numerator, denominator)


def is_even(exponent: Exponent) -> bool:
    """Whether an exponent is an even whole number."""
    return exponent.denominator == 1 and exponent.numerator % 2 == 0
