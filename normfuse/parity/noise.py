"""The noise floor: how far a result moves when what it is computed from moves by one ulp.

A computation cannot be held to more than its own sensitivity. If every float input is known to one unit in
the last place, results that differ by what such a nudge causes are equally right. That adapts a bound to the
depth and the conditioning of the model, where one constant would fail deep models and pass shallow ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator

from normfuse.parity.dtypes import is_float, roundoff
from normfuse.parity.settings import Array

# Integers of the same width, to count neighbours with.
WORDS: dict[int, Any] = {2: np.int16, 4: np.int32, 8: np.int64}


def nudge(array: Array, rng: Generator) -> Array:
    """Every element moved to a neighbour in its own type, up or down at random; zeros stay zero.

    The bits of an IEEE number, read as an integer, count magnitudes: plus or minus 1 is one ulp.
    """
    if not is_float(array):
        return array
    words = np.ascontiguousarray(array).view(WORDS[array.dtype.itemsize])
    bits = np.unpackbits(np.frombuffer(rng.bytes((array.size + 7) // 8), np.uint8), count=array.size)
    # In place, for these may be all the weights of a model.
    step = bits.astype(words.dtype).reshape(words.shape)
    step *= 2
    step -= 1
    step += words
    moved = step.view(array.dtype).reshape(array.shape)
    with np.errstate(invalid="ignore"):  # bfloat16 has signalling NaNs for numpy
        keep = ~np.isfinite(array) | ~np.isfinite(moved) | (array == 0)
    if keep.any():
        moved[keep] = array[keep]
    return moved


def nudge_halfway(array: Array, rng: Generator) -> Array:
    """The same by half an ulp, in float64: the rounding error of storing the value at all.

    There is nothing between two neighbours in float64 itself, so there it is a whole ulp.
    """
    if not is_float(array) or array.dtype == np.float64:
        return nudge(array, rng)
    wide = array.astype(np.float64)
    return (wide + nudge(array, rng).astype(np.float64)) / 2


def nudge_by(array: Array, unit: float, rng: Generator) -> Array:
    """Every element of a finer type moved by two of these unit roundoffs: one ulp of the coarser type."""
    if not is_float(array) or roundoff(array.dtype) >= unit:
        return nudge(array, rng)
    signs = rng.integers(0, 2, array.shape) * 2 - 1
    moved = array.astype(np.float64) * (1 + signs * 2 * unit)
    return np.asarray(moved.astype(array.dtype))


def nudge_all(feed: Mapping[str, Array], rng: Generator) -> dict[str, Array]:
    """Every float value of a mapping moved by one ulp."""
    return {name: nudge(value, rng) for name, value in feed.items()}


def lengths(proto: onnx.ModelProto) -> set[str]:
    """Floats that say how large something becomes; a nudge would give another shape."""
    return {n for node in proto.graph.node if node.op_type in ("Resize", "Upsample") for n in node.input[1:]}
