"""New weights and biases: computed in float64, rounded once, and checked before anything is changed.

    behind     W' = W * scale                b' = b * scale + shift
    in front   W' = W * scale                b' = b + sum(W * shift)

A fold is refused where a finite number becomes infinite in the data type of the weights (fold-overflow), and
where the weights of a channel, measured against the largest of them, lose more than a rounding
(fold-underflow): that is where a channel sinks into the subnormal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from normfuse.folding.affine import Affine, Array
from normfuse.folding.linear import Linear, Side
from normfuse.folding.stop import Stop
from normfuse.graph.facts import Facts

BLOCK = 1 << 22
"""Elements that are scaled at a time: float64 copies of large weights would not fit in memory."""
MAX_BIAS = 1 / 64
"""The largest new bias, as a share of the largest number of the data type.

Where a runtime adds the bias in a step of its own, the sum before it may overflow although the result does
not. With a bias this small it cannot, short of the last hundredth of the range.
"""
MAX_HALF_PASSED_ON = 16.0
"""The largest shift that is passed on through half-precision weights.

It is rounded as it is, whereas the values that it is added to are small: they were normalized.
"""


@dataclass(frozen=True)
class Leaf:
    """A linear operator that takes in an affine of its output (behind) or of its data.

    add: the Add that already stands behind an operator without a bias of its own, and is kept as its bias.
    """

    linear: Linear
    affine: Affine
    behind: bool
    add: ir.Node | None = None

    @property
    def adds(self) -> bool:
        """Whether an Add has to be made for the shift."""
        return self.linear.slot is None and self.affine.moves and self.add is None


@dataclass(frozen=True)
class Numbers:
    """What a leaf becomes. None where nothing changes; rounding: relative to the channel's largest weight."""

    weight: Array | None
    bias: Array | None
    rounding: float


def compute(facts: Facts, leaf: Leaf) -> Numbers | Stop:
    """The new weights and bias of `leaf`, or why they cannot be."""
    linear, affine = leaf.linear, leaf.affine
    side = linear.outer if leaf.behind else linear.inner
    bias = _bias(facts, leaf)
    if isinstance(bias, Stop):
        return bias
    weight: Array | None = None
    rounding = 0.0
    if affine.scales:
        stored = facts.constants.get(linear.weight)
        facts.constants.forget(linear.weight)
        if stored is None:
            return Stop("no-linear-neighbour", f"the weights {linear.weight.name!r} cannot be read")
        scaled = _scaled(stored, linear.view, side, affine.scale)
        if isinstance(scaled, Stop):
            return scaled
        weight, rounding = scaled
    return Numbers(weight, bias, rounding)


def _bias(facts: Facts, leaf: Leaf) -> Array | Stop | None:
    """The new bias in the data type of the weights, shaped against the output; None where it stays."""
    linear, affine = leaf.linear, leaf.affine
    old = _old_bias(facts, leaf)
    if isinstance(old, Stop):
        return old
    before = np.zeros((1,) * linear.outer.rank) if old is None else old
    if leaf.behind:
        exact = before * affine.scale + affine.shift
    elif not affine.moves:
        return None
    else:
        passed = _passed_on(facts, linear, affine.shift)
        if isinstance(passed, Stop):
            return passed
        exact = before + passed
    if old is None and not np.any(exact):
        return None
    spread = linear.outer.onto_value(linear.outer.onto_weights(exact))
    dtype = facts.shapes.dtype(linear.weight)
    assert dtype is not None
    with np.errstate(over="ignore"):
        rounded = spread.astype(dtype.numpy())
    finite = np.isfinite(rounded.astype(np.float64)).reshape(-1)
    if not finite.all():
        channel = int(np.argmin(finite))
        return Stop("fold-overflow", f"channel {channel}: the bias {spread.reshape(-1)[channel]:g} "
                    f"does not fit {dtype.name.lower()}", reached=True)  # fmt: skip
    too_large = _too_large(leaf, before, spread, dtype)
    return rounded if too_large is None else too_large


def _too_large(leaf: Leaf, before: Array, bias: Array, dtype: ir.DataType) -> Stop | None:
    """Why a bias that the data type can hold is too large for it all the same, or None."""
    largest, known = float(np.abs(bias).max(initial=0)), float(np.abs(before).max(initial=0))
    # behind, a scale up to 1 only makes the sum smaller than the model itself has computed
    added = np.where(np.abs(leaf.affine.scale) > 1, bias, 0.0) if leaf.behind else bias
    if float(np.abs(added).max(initial=0)) > max(max_bias(dtype), known):
        return Stop("fold-overflow", f"the sum before a bias of {largest:g} may overflow", reached=True)
    if dtype.itemsize == 2 and not leaf.behind and largest > max(MAX_HALF_PASSED_ON, known):
        return Stop("precision", f"the bias would become {largest:g}, and be rounded as that", reached=True)
    return None


def max_bias(dtype: ir.DataType) -> float:
    """The largest new bias in a data type."""
    return float(ml_dtypes.finfo(dtype.numpy()).max) * MAX_BIAS  # type: ignore[no-untyped-call]


def _old_bias(facts: Facts, leaf: Leaf) -> Array | Stop | None:
    """The bias that the leaf has so far.

    Behind, the affine of an Add that is kept has been taken into the affine already.
    """
    if leaf.add is None or leaf.behind:
        return leaf.linear.bias(facts)
    constant = next(v for v in leaf.add.inputs if v is not None and v is not leaf.linear.output)
    array = facts.constants.get(constant)
    assert array is not None
    rank = leaf.linear.outer.rank
    return array.astype(np.float64).reshape((1,) * (rank - array.ndim) + array.shape)


def _passed_on(facts: Facts, linear: Linear, shift: Array) -> Array | Stop:
    if linear.rigid:
        return Stop("padding-not-invariant", linear.rigid, reached=True)
    stored = facts.constants.get(linear.weight)
    facts.constants.forget(linear.weight)
    if stored is None:
        return Stop("no-linear-neighbour", f"the weights {linear.weight.name!r} cannot be read")
    return linear.passed_on(stored.astype(np.float64).reshape(linear.view), shift)


def _scaled(stored: Array, view: tuple[int, ...], side: Side, scale: Array) -> tuple[Array, float] | Stop:
    """The weights times the scale, rounded to their own data type, and the worst rounding of a channel."""
    factor = side.onto_weights(scale)
    weights = stored.reshape(view)
    result = np.empty_like(weights)
    error, largest = np.zeros(side.shape), np.zeros(side.shape)
    alone = tuple(k for k, size in enumerate(side.shape) if size == 1)
    for index in _blocks(view):
        share = tuple(i if size != 1 else slice(None) for i, size in zip(index, side.shape, strict=True))
        with np.errstate(all="ignore"):
            exact = weights[index].astype(np.float64) * factor[share]
            result[index] = exact.astype(stored.dtype)
            off = np.abs(result[index].astype(np.float64) - exact)
        np.maximum(error[share], off.max(alone, keepdims=True, initial=0), out=error[share])
        np.maximum(largest[share], np.abs(exact).max(alone, keepdims=True, initial=0), out=largest[share])
    return _judged(result.reshape(stored.shape), error.reshape(-1), largest.reshape(-1))


def _judged(result: Array, error: Array, largest: Array) -> tuple[Array, float] | Stop:
    name = result.dtype.name
    if not np.isfinite(error).all():
        channel = int(np.argmin(np.isfinite(error)))
        what = f"channel {channel}: a weight of {largest[channel]:g} does not fit {name}"
        return Stop("fold-overflow", what, reached=True)
    rounding = np.divide(error, largest, out=np.zeros_like(error), where=largest > 0)
    unit = float(ml_dtypes.finfo(result.dtype).eps) / 2  # type: ignore[no-untyped-call]
    if rounding.size and rounding.max() > unit * 1.01:
        channel = int(np.argmax(rounding))
        what = f"channel {channel}: its largest weight {largest[channel]:g} is too small for {name}"
        return Stop("fold-underflow", what, reached=True)
    return result, float(rounding.max(initial=0.0))


def _blocks(view: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Slices that cover the weights, along the longest of the first three axes."""
    axis = max(range(min(len(view), 3)), key=lambda k: view[k])
    step = max(1, BLOCK * view[axis] // max(math.prod(view), 1))
    for start in range(0, view[axis], step):
        yield tuple(slice(start, start + step) if k == axis else slice(None) for k in range(len(view)))
