"""Is a polynomial a normalization? One judgement for all spellings.

    LayerNorm   s*x*R - s*M*R + b     M = Mean(x, A)   R = (a*Mean(x^2, A) - a*M^2 + e)^(-1/2)
    RMSNorm     s*x*R + b                              R = (a*Mean(x^2, A) + e)^(-1/2)

    (sigma+e) forms   the same with R = ((a*Mean(x^2, A) - …)^(1/2) + d)^(-1)

s and b are constants. The factor `a` (Bessel's N/(N-1), a sum for a mean) is a number above 0 and divides
out exactly: epsilon = e/a, scale = s/sqrt(a). epsilon is a number, not negative.

A form that differs in one point is a `NearMiss`, with the reason code for that point.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

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
    as_whole,
)
from normfuse.algebra.coefficient import Coefficient, agree
from normfuse.algebra.frame import Frame
from normfuse.algebra.polynomial import Algebra
from normfuse.norms.norm import Kind

_MINUS_HALF = as_whole(Fraction(-1, 2))
_HALF = as_whole(Fraction(1, 2))
_UNIT = 1
_SUMS = (Power, Clamp)
_NO_ROOTS = (Base, Opaque, Size)


@dataclass(frozen=True)
class Form:
    """A recognised normalization: kind, axes of the frame, epsilons, and scale and bias as coefficients.

    epsilon stands beside the variance, deviation_epsilon (0 where there is none) beside its root.
    """

    kind: Kind
    axes: frozenset[int]
    epsilon: float
    scale: Coefficient
    bias: Coefficient
    deviation_epsilon: float = 0.0


@dataclass(frozen=True)
class NearMiss:
    """A root of a mean that is no normalization: the reason code, and what was found."""

    kind: Kind
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class _Statistic:
    """What the numerator is divided by: factor * ((variance + epsilon)^(1/2) + deviation_epsilon)."""

    kind: Kind
    axes: frozenset[int]
    epsilon: float
    factor: float
    deviation_epsilon: float = 0.0


def recognise(frame: Frame, p: Polynomial) -> Form | NearMiss | None:
    """The normalization that a polynomial is; a near miss; or None when it holds no root of a mean."""
    algebra = frame.algebra
    roots = [(m, n, e) for m in p for n, e in m if _is_root(algebra, n, e)]
    if not roots:
        return None
    if _is_global_response(algebra, p):
        return NearMiss("GlobalResponseNorm", "no-fused-operator", "x * ||x|| / mean(||x||)")
    root, exponent = roots[0][1], roots[0][2]
    if any((n, e) != (root, exponent) for _, n, e in roots):
        return NearMiss("RMSNorm", "not-a-normalization", "several different roots")
    if _is_absolute_mean(algebra, root):
        return NearMiss("L1Norm", "no-fused-operator", "x / ||x|| with the sum of magnitudes")
    if isinstance(algebra.atoms[root], Clamp):
        return _clamped(algebra, root)
    statistic = _deviation(algebra, root) if exponent == -1 else _statistic(algebra, root)
    if isinstance(statistic, NearMiss):
        return statistic
    if exponent not in (_MINUS_HALF, -1):
        return NearMiss(statistic.kind, "not-a-normalization", f"the statistic is to the power {exponent}")
    return _numerator(algebra, p, (root, exponent), statistic)


def _is_global_response(algebra: Algebra, p: Polynomial) -> bool:
    """Whether something is divided by a mean of roots: x * ||x|| / mean(||x||) (Woo et al., 2023)."""
    divisors = (algebra.atoms[n] for m in p for n, e in m if e == -1)
    return any(isinstance(atom, Power) and _is_mean_of_roots(algebra, atom.of) for atom in divisors)


def _is_mean_of_roots(algebra: Algebra, under: Polynomial) -> bool:
    means = [atom for m in under for n, _ in m if isinstance(atom := algebra.atoms[n], Mean)]
    return any(e == _HALF for mean in means for _, e in mean.of)


def has_root(algebra: Algebra, p: Polynomial) -> bool:
    """Whether the root of a mean is a factor of some term."""
    return any(_is_root(algebra, n, e) for m in p for n, e in m)


def _is_root(algebra: Algebra, number: int, exponent: Exponent) -> bool:
    """Whether a factor is the root of a mean, or of a sum that holds one, or a sum of such roots."""
    atom = algebra.atoms[number]
    if isinstance(atom, _NO_ROOTS) or (exponent.denominator == 1 and exponent != -1 and type(atom) is Mean):
        return False
    if exponent == -1 and _is_absolute_mean(algebra, number):
        return True
    if exponent.denominator != 1:
        return isinstance(atom, Mean) or _holds_mean(algebra, number)
    return isinstance(atom, _SUMS) and any(_is_root(algebra, n, e) for m in atom.of for n, e in m)


def _is_absolute_mean(algebra: Algebra, number: int) -> bool:
    """Whether an atom is the mean of |x|, clamped or not."""
    atom = algebra.atoms[number]
    if isinstance(atom, Clamp):
        return any(_is_absolute_mean(algebra, n) for m in atom.of for n, _ in m)
    return isinstance(atom, Mean) and any(isinstance(algebra.atoms[n], Magnitude) for n, _ in atom.of)


def _clamped(algebra: Algebra, number: int) -> NearMiss:
    """x / max(||x||, c): no fused operator clamps; the nearest are exact only above c."""
    atom = algebra.atoms[number]
    assert isinstance(atom, Clamp)
    centred = any(c < 0 for c in atom.of.values() if not isinstance(c, np.ndarray))
    kind: Kind = "LayerNorm" if centred else "L2Norm"
    return NearMiss(kind, "no-fused-operator", f"the divisor is clamped at {atom.least:g}")


def _deviation(algebra: Algebra, number: int) -> _Statistic | NearMiss:
    """The statistic of a root with an epsilon added to it, under a division."""
    atom = algebra.atoms[number]
    assert isinstance(atom, Power)
    rest = dict(atom.of)
    epsilon = rest.pop(ONE, 0.0)
    ((monomial, factor), *others) = rest.items()
    inner = monomial[0][0]
    if others or len(monomial) != 1 or monomial[0][1] != _HALF:
        return NearMiss("RMSNorm", "eps-outside-sqrt", "other terms are added to the root")
    statistic = _statistic(algebra, inner)
    if isinstance(statistic, NearMiss):
        return statistic
    if isinstance(factor, np.ndarray) or factor <= 0 or isinstance(epsilon, np.ndarray) or epsilon <= 0:
        return NearMiss(
            statistic.kind, "eps-outside-sqrt", "epsilon is added to the root, and is not one number"
        )
    total = factor * statistic.factor
    return _Statistic(statistic.kind, statistic.axes, statistic.epsilon, total, epsilon / total)


def _statistic(algebra: Algebra, root: int) -> _Statistic | NearMiss:
    atom = algebra.atoms[root]
    if isinstance(atom, Mean):  # epsilon 0: the root of a single mean is no sum
        under: Polynomial = {((root, _UNIT),): 1.0}
    else:
        assert isinstance(atom, Power)
        under = atom.of
    base = algebra.base
    rest = dict(under)
    epsilon = rest.pop(ONE, 0.0)
    squares = [(m, algebra.atoms[m[0][0]]) for m in rest if len(m) == 1 and m[0][1] == 1]
    means = [(m, a) for m, a in squares if isinstance(a, Mean) and a.of == ((base, 2),)]
    if len(means) != 1:
        return _not_a_mean_of_squares(algebra, under)
    monomial, mean = means[0]
    assert isinstance(mean, Mean)
    factor = rest.pop(monomial)
    kind: Kind = "RMSNorm"
    centre = _mean_of_base(algebra, mean.axes)
    if centre is not None and (square := ((centre, 2),)) in rest:
        if not agree(rest.pop(square), -factor):
            return NearMiss("LayerNorm", "not-a-normalization", "the mean is not subtracted as it is")
        kind = "LayerNorm"
    return _finished(algebra, kind, mean.axes, factor, epsilon, rest)


def _finished(algebra: Algebra, kind: Kind, axes: frozenset[int], factor: Coefficient, epsilon: Coefficient,
              rest: Polynomial) -> _Statistic | NearMiss:  # fmt: skip
    if rest:
        return _foreign_term(algebra, kind, axes, rest)
    if isinstance(factor, np.ndarray) or factor <= 0:
        return NearMiss(kind, "not-a-normalization", "the statistic has a factor that varies, or is negative")
    if isinstance(epsilon, np.ndarray):
        return NearMiss(kind, "epsilon-not-uniform", "epsilon is not one number")
    if epsilon < 0:
        return NearMiss(kind, "epsilon-negative", f"epsilon is {epsilon:g}")
    return _Statistic(kind, axes, epsilon / factor, float(np.sqrt(factor)))


def _mean_of_base(algebra: Algebra, axes: frozenset[int]) -> int | None:
    return algebra.known(Mean(((algebra.base, _UNIT),), axes))


def _foreign_term(algebra: Algebra, kind: Kind, axes: frozenset[int], rest: Polynomial) -> NearMiss:
    for monomial in rest:
        for number, _ in monomial:
            atom = algebra.atoms[number]
            if isinstance(atom, Opaque):
                return NearMiss(kind, "epsilon-not-constant", "epsilon is computed at run time")
            if isinstance(atom, Mean) and atom.axes != axes:
                return NearMiss("LayerNorm", "axes-differ", _axes_words(atom.axes, axes))
    return NearMiss(kind, "not-a-normalization", "other terms stand under the root")


def _axes_words(mean: frozenset[int], variance: frozenset[int]) -> str:
    return f"the mean is over axes {sorted(mean)}, the variance over {sorted(variance)}"


def _not_a_mean_of_squares(algebra: Algebra, under: Polynomial) -> NearMiss:
    for monomial in under:
        for number, exponent in monomial:
            atom = algebra.atoms[number]
            if exponent == _HALF and (isinstance(atom, Mean) or _holds_mean(algebra, number)):
                return NearMiss(_looks(algebra, number), "eps-outside-sqrt", "epsilon is added to the root")
            if isinstance(atom, Opaque | Size):
                return NearMiss("RMSNorm", "divisor!=N", "the statistic is not divided by what it sums")
    powers = sorted({e for number in algebra.atoms_in(under) for e in _base_exponents(algebra, number)})
    if powers and powers != [1] and (powers[-1] != 2 or any(e.denominator != 1 for e in powers)):
        return NearMiss(
            "LayerNorm", "exponent!=2", f"the statistic is of powers {', '.join(map(str, powers))}"
        )
    return NearMiss("RMSNorm", "not-a-normalization", "no mean of squares stands under the root")


def _holds_mean(algebra: Algebra, number: int) -> bool:
    atom = algebra.atoms[number]
    return isinstance(atom, _SUMS) and algebra.holds(number, Mean)


def _looks(algebra: Algebra, number: int) -> Kind:
    return "LayerNorm" if isinstance(algebra.atoms[number], Power) else "RMSNorm"


def _base_exponents(algebra: Algebra, number: int) -> list[Exponent]:
    """The powers to which the base, or a centred base, is raised inside a mean."""
    atom = algebra.atoms[number]
    if not isinstance(atom, Mean):
        return []
    inner = [(n, e) for n, e in atom.of if n == algebra.base or isinstance(algebra.atoms[n], Power)]
    return [e for _, e in inner]


def _numerator(
    algebra: Algebra, p: Polynomial, tail: tuple[int, Exponent], statistic: _Statistic
) -> Form | NearMiss:
    rest = dict(p)
    bias = rest.pop(ONE, 0.0)
    scale = rest.pop(_monomial((algebra.base, _UNIT), tail), None)
    if scale is None:
        return _no_numerator(algebra, rest, statistic)
    centre = _mean_of_base(algebra, statistic.axes)
    centred = None if centre is None else rest.pop(_monomial((centre, _UNIT), tail), None)
    if rest:
        return _leftover(algebra, rest, statistic.kind)
    if statistic.kind == "LayerNorm" and (centred is None or not agree(centred, -scale)):
        return NearMiss(
            "LayerNorm", "numerator-not-centred", "the variance is centred and the numerator is not"
        )
    if statistic.kind == "RMSNorm" and centred is not None:
        return NearMiss(
            "RMSNorm", "numerator-not-centred", "the numerator is centred and the statistic is not"
        )
    return Form(
        kind=statistic.kind,
        axes=statistic.axes,
        epsilon=statistic.epsilon,
        scale=scale / statistic.factor,
        bias=bias,
        deviation_epsilon=statistic.deviation_epsilon,
    )


def _monomial(*factors: tuple[int, Exponent]) -> Monomial:
    return tuple(sorted(factors))


def _no_numerator(algebra: Algebra, rest: Polynomial, statistic: _Statistic) -> NearMiss:
    atoms = [{n for n, _ in m} for m in rest]
    opaque = [any(isinstance(algebra.atoms[n], Opaque) for n in term) for term in atoms]
    if not any(opaque):
        return NearMiss(statistic.kind, "not-a-normalization", "nothing is divided by the root")
    if any(algebra.base in term for term, runtime in zip(atoms, opaque, strict=True) if runtime):
        return NearMiss(statistic.kind, "affine-not-constant", "the scale is computed at run time")
    return NearMiss(
        statistic.kind, "statistics-of-another-tensor", "the statistics of one tensor scale another"
    )


def _leftover(algebra: Algebra, rest: Polynomial, kind: Kind) -> NearMiss:
    if any(isinstance(algebra.atoms[n], Opaque) for m in rest for n, _ in m):
        return NearMiss(kind, "affine-not-constant", "scale or bias is computed at run time")
    return NearMiss(kind, "not-a-normalization", "further terms are added")
