"""Whether a fused operator would round a normalization more often, or more coarsely, than the model does.

- x and y have one type; where it is a half, scale and bias are stored in it without a rounding, or are
  made of constants that were (a Bessel factor moved into gamma rounds it once, and saves the roundings
  between the operators);
- what is computed in float64 on float32 tensors stays so;
- epsilon is a float32 attribute: it must be finite, not vanish, and in float64 be that number to 2^-40;
- (sigma + e) needs an epsilon beside the variance so small that sigma + e does not see it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from normfuse.algebra.coefficient import TOLERANCE, Array, Coefficient
from normfuse.algebra.walk import FLOATS, Walk
from normfuse.graph.facts import Facts
from normfuse.norms.forms import Form

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


def objection(
    facts: Facts, found: Walk, value: ir.Value, form: Form, nodes: tuple[ir.Node, ...]
) -> tuple[str, str] | None:
    """A reason code and what was found, or None when the form can be said as precisely as the model does."""
    dtype, result = found.frame.dtype, found.traced[value].dtype
    if result != dtype:
        return "precision", f"the result is {result.name}, the input {dtype.name}"
    inner = {found.traced[n.outputs[0]].dtype for n in nodes}
    if dtype == ir.DataType.FLOAT and ir.DataType.DOUBLE in inner:
        return "precision", "it is computed in float64"
    of_epsilon = _of_epsilon(dtype, form.epsilon, form.deviation_epsilon)
    return of_epsilon or _of_affine(dtype, form, lambda: _constants(facts, found, nodes))


@functools.lru_cache
def _of_epsilon(dtype: ir.DataType, epsilon: float, deviation_epsilon: float) -> tuple[str, str] | None:
    with np.errstate(over="ignore", under="ignore"):
        stored = float(np.float32(epsilon))
    if not np.isfinite(stored) or (epsilon and not stored > 0):
        return "epsilon-not-representable", f"epsilon {epsilon:g} is {stored:g} in float32"
    if dtype == ir.DataType.DOUBLE and abs(stored - epsilon) > TOLERANCE * epsilon:
        return "epsilon-not-representable", f"epsilon {epsilon!r} is no float32"
    if not deviation_epsilon:
        return None
    tiny = epsilon or tiny_epsilon(deviation_epsilon)
    if dtype != ir.DataType.FLOAT or tiny < _SMALLEST_NORMAL:
        return "eps-outside-sqrt", f"epsilon {deviation_epsilon:g} is added to the root, in {dtype.name}"
    return None


def tiny_epsilon(deviation_epsilon: float) -> float:
    """An epsilon beside the variance whose root is 2^-26 of the one beside the deviation.

    sqrt(v + t) differs from sqrt(v) by at most sqrt(t), which is below half an ulp of the sum with e in
    float32; and where v is 0 it keeps 0/0 away.
    """
    return (deviation_epsilon * 2.0**-26) ** 2


def _constants(facts: Facts, found: Walk, nodes: tuple[ir.Node, ...]) -> list[Array]:
    """The constant tensors, of more than one element, that a site reads."""
    operands = (v for n in nodes for v in n.inputs if v is not None and v not in found.traced)
    arrays = (facts.constants.get(v) for v in operands if facts.shapes.dtype(v) in FLOATS)
    return [a for a in arrays if a is not None and a.size > 1]


def _of_affine(dtype: ir.DataType, form: Form, constants: Callable[[], list[Array]]
               ) -> tuple[str, str] | None:  # fmt: skip
    for coefficient in (form.scale, form.bias):
        if isinstance(coefficient, float) and dtype == ir.DataType.FLOAT and abs(coefficient) <= _LARGEST:
            continue
        values = np.asarray(coefficient, dtype=np.float64)
        with np.errstate(over="ignore", under="ignore"):
            stored = values.astype(dtype.numpy()).astype(np.float64)
        if not np.all(np.isfinite(stored)):
            return "precision", f"scale or bias would overflow {dtype.name}"
        if dtype in _HALF and not _agree(stored, values) and not all(_fits(a, dtype) for a in constants()):
            return "precision", f"scale or bias would be rounded to {dtype.name}"
    return None


def _fits(array: Array, dtype: ir.DataType) -> bool:
    values = np.asarray(array, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return _agree(values.astype(dtype.numpy()).astype(np.float64), values)


def _agree(stored: Coefficient, values: Coefficient) -> bool:
    return bool(np.all(np.abs(stored - values) <= TOLERANCE * np.abs(values)))
