"""Smaller inputs for large sites, where the rewrite is the same everywhere along an axis.

A convolution is, except at its borders: a corner of the image shows all it does. A normalization is along the
axes that it does not normalize; which these are is found by trying.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from normfuse.parity.adversarial import Variant
from normfuse.parity.compare import distance
from normfuse.parity.dtypes import is_float, roundoff
from normfuse.parity.sessions import RuntimeRefusalError
from normfuse.parity.settings import Array
from normfuse.parity.sides import Sides

# Spatial extent of a cropped image: two borders and an interior; of one that many weights are applied to.
EXTENT, SHORT = 7, 4
MANY_BYTES = 200_000
# Normalizations of more elements than this are shrunk for the made inputs.
LARGE = 1 << 12
FEW = 4
# Sums of another length are vectorized otherwise, so the part may be rounded otherwise than the whole.
SAME = 1000.0


def cropped(sides: Sides, recordings: Sequence[Variant], extents: Sequence[int] = (EXTENT,)) -> list[Variant]:
    """Recorded images cut to a corner, to the first of these extents that both sides accept."""
    for extent in extents:
        small = [(label, {k: _corner(v, extent) for k, v in feed.items()}) for label, feed in recordings]
        if all(small[i][1][k].shape == v.shape for i, (_, f) in enumerate(recordings) for k, v in f.items()):
            return list(recordings)
        try:
            for _, feed in distinct(small):
                sides.run_before(feed)
                sides.run_after(feed)
        except RuntimeRefusalError:
            continue
        return small
    return list(recordings)


def _corner(array: Array, extent: int) -> Array:
    if array.ndim < 3 or not is_float(array):
        return array
    keep = (slice(0, 1), slice(None), *(slice(0, extent) for _ in array.shape[2:]))
    return np.ascontiguousarray(array[keep])


def distinct(recordings: Sequence[Variant]) -> list[Variant]:
    """One recording of each shape: a linear operator does the same to other numbers."""
    found: dict[tuple[tuple[int, ...], ...], Variant] = {}
    for label, feed in recordings:
        found.setdefault(tuple(value.shape for value in feed.values()), (label, feed))
    return list(found.values())


def shrunk(sides: Sides, feed: Mapping[str, Array], reads: Sequence[str]) -> Mapping[str, Array]:
    """A few rows or pixels of a large input, if the original makes of them what it makes of the whole."""
    shapes = {feed[name].shape for name in reads}
    if len(shapes) != 1 or int(np.prod(next(iter(shapes)))) <= LARGE:
        return feed
    shape = next(iter(shapes))
    whole = sides.run_before(feed)
    for keep in _ways(shape):
        small = {k: np.ascontiguousarray(v[keep]) if k in reads else v for k, v in feed.items()}
        try:
            part = sides.run_before(small)
            sides.run_after(small)
        except RuntimeRefusalError:
            continue  # a shape or a constant inside is fixed along an axis that was cut
        if whole.shape == shape and distance(whole[keep], part).relative <= SAME * roundoff(part.dtype):
            return small
    return feed


def _ways(shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """All but the last axis cut short; all but the first two (channels first)."""
    rows = tuple(slice(0, FEW) for _ in shape[:-1])
    pixels = tuple(slice(0, FEW) for _ in shape[2:])
    return [(*rows, slice(None)), (slice(0, FEW), slice(None), *pixels)]
