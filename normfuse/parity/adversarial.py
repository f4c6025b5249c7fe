"""Inputs on which a wrong rewrite shows, made for one site at the shape that was recorded.

Ordinary random numbers have mean 0 and variance 1: they hide a wrong epsilon, a mean that is not subtracted
and a bias that is not added. So each site also sees

    zero               only the bias is left; 0/0 where there is no epsilon
    constant           the variance is 0, so epsilon alone divides
    tiny variance      variance equal to each small constant of the site, where its epsilon matters most
    shifted            mean -3: an RMS norm in the place of a LayerNorm shows
    uneven             magnitudes differ along every axis: rows of all sizes, with elements that stand out
    offset             mean 1,000 and 30,000: E[x²]-E[x]² loses every digit
    large              magnitude 10,000: squares overflow in half precision

Half precision gets smaller numbers, that stay finite when they are squared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from onnx import AttributeProto, NodeProto, numpy_helper

from normfuse.parity.dtypes import HALVES, is_float
from normfuse.parity.extract import Piece, operators
from normfuse.parity.model import FLOATS
from normfuse.parity.settings import Array

Variant = tuple[str, dict[str, Array]]
SMALL = 2e-2
MOST_LEVELS = 4
# The least deviation in half precision: smaller ones are subnormal, and squared they are 0 but for a cast.
LEAST_IN_HALF = {False: 1e-4, True: 1e-6}


def variants(
    feed: Mapping[str, Array], reads: Sequence[str], pieces: Sequence[Piece], rng: Generator
) -> Iterator[Variant]:
    """Made inputs of the recorded shapes; what is no float value read by the rewrite keeps its recording."""
    moved = [name for name in reads if is_float(feed[name])]
    if not moved:
        return
    half = any(feed[name].dtype in HALVES for name in moved)
    recipes = _normal_rows(pieces, half) if is_normalization(pieces) else _linear_rows()
    for label, scale, offset in recipes:
        made = {name: (rng.normal(size=feed[name].shape) * scale + offset) for name in moved}
        yield label, _stored(feed, made)
    if is_normalization(pieces):
        yield "uneven", _stored(feed, {name: _uneven(feed[name].shape, rng, half) for name in moved})


def _stored(feed: Mapping[str, Array], made: Mapping[str, Any]) -> dict[str, Array]:
    """The recorded input with made values in the place of some, in their types."""
    return {**feed, **{name: np.asarray(value).astype(feed[name].dtype) for name, value in made.items()}}


def _uneven(shape: Sequence[int], rng: Generator, half: bool) -> Any:
    """Heavy-tailed numbers, each axis with factors of its own over two powers of ten (one in half)."""
    most, reach = (8.0, 0.5) if half else (100.0, 1.0)
    values = np.clip(rng.standard_cauchy(size=shape), -most, most)
    for axis, size in enumerate(shape):
        factors = 10 ** rng.uniform(-reach, reach, size)
        values *= factors.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return values


def is_normalization(pieces: Sequence[Piece]) -> bool:
    """Whether any side computes statistics of its input; else it is linear in it."""
    kinds = set().union(*(operators(piece) for piece in pieces))
    return any(
        kind.startswith(("Reduce", "Global"))
        or (kind.endswith("Normalization") and kind != "BatchNormalization")
        for kind in kinds
    )


def _linear_rows() -> list[tuple[str, float, float]]:
    return [("normal", 1.0, 0.0), ("zero", 0.0, 0.0)]


def _normal_rows(pieces: Sequence[Piece], half: bool) -> list[tuple[str, float, float]]:
    near, far, large = (8.0, 64.0, 100.0) if half else (1e3, 3e4, 1e4)
    rows = [("normal", 1.0, 0.0), ("zero", 0.0, 0.0), ("constant", 0.0, 1.3), ("shifted", 1.0, -3.0)]
    rows += [
        (f"offset {near:,.0f}", 1.0, near),
        (f"offset {far:,.0f}", 1.0, far),
        (f"large {large:,.0f}", large, 0.0),
    ]
    lowest = LEAST_IN_HALF[any("Cast" in operators(piece) for piece in pieces)] if half else 1e-18
    levels = [level for level in _levels(pieces) if level >= lowest]
    return rows + [(f"tiny variance {level**2:.0e}", level, 0.0) for level in levels[:MOST_LEVELS]]


def _levels(pieces: Sequence[Piece]) -> list[float]:
    """Deviations at which the small constants of a site (its epsilons) matter most.

    An epsilon inside the root weighs as much as the variance where the deviation is sqrt(epsilon), one
    outside the root where it is epsilon itself.
    """
    found = dict.fromkeys(c for piece in pieces for c in _scalars(piece) if 0 < c < SMALL)
    candidates = [3e-4, *(c**0.5 for c in found), *found]
    chosen: list[float] = []
    for level in candidates:
        if all(abs(np.log10(level / other)) > 0.25 for other in chosen):
            chosen.append(level)
    return chosen


def _scalars(piece: Piece) -> Iterator[float]:
    for tensor in piece.initializers:
        if tensor.data_type in FLOATS and np.prod(tensor.dims, dtype=np.int64) == 1:
            yield float(piece.model.array(tensor).reshape(-1)[0])
    for node in piece.nodes:
        yield from _attribute_scalars(node)


def _attribute_scalars(node: NodeProto) -> Iterator[float]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.FLOAT and attribute.name in ("epsilon", "value_float"):
            yield attribute.f
        elif attribute.type == AttributeProto.TENSOR and attribute.t.data_type in FLOATS:
            values = numpy_helper.to_array(attribute.t).reshape(-1)
            if values.size == 1:
                yield float(values[0])
