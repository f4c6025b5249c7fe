"""The truth of several made inputs in one evaluation, where a rewrite treats the rows of a batch alike.

    x0 [2, 7, 64], x1 [2, 7, 64], …  ->  x [2n, 7, 64]  ->  y  ->  y0, y1, …

The evaluation in float64 costs as much for one input as for ten; where weights are many, it is to read them
that costs. That the rows do not mix is not assumed: the original, run on all of them at once, must give for
each what it gives for it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from normfuse.parity.compare import distance
from normfuse.parity.dtypes import is_float, roundoff
from normfuse.parity.reference import CannotEvaluateError
from normfuse.parity.sessions import RuntimeRefusalError
from normfuse.parity.settings import Array
from normfuse.parity.sides import SMALL, Sides, Truth

# The kernels are the same, so rows of a larger batch are rounded alike, or nearly.
SAME = 8.0


def truths(
    sides: Sides, feeds: Sequence[Mapping[str, Array]], reads: Sequence[str], rng: Generator
) -> list[Truth | None]:
    """The truth of each input, or None for each where they have to be evaluated alone."""
    alone: list[Truth | None] = [None] * len(feeds)
    moved = [name for name in reads if is_float(feeds[0][name])] if feeds else []
    if len(feeds) < 2 or not moved or any(feeds[0][name].ndim < 2 for name in moved):
        return alone
    joined = {**feeds[0], **{name: np.concatenate([feed[name] for feed in feeds]) for name in moved}}
    try:
        whole = sides.run_before(joined)
        parts = [sides.run_before(feed) for feed in feeds]
        if not is_float(whole) or not _same(whole, parts):
            return alone
        truth = sides.in_float64(joined, 1 if parts[0].size >= SMALL else 2, rng)
    except (RuntimeRefusalError, CannotEvaluateError):
        return alone
    values, *nudged = (np.split(value, len(feeds)) for value in (truth.value, *truth.moved))
    return [
        replace(truth, value=value, moved=[part[i] for part in nudged], before=parts[i])
        for i, value in enumerate(values)
    ]


def _same(whole: Array, parts: Sequence[Array]) -> bool:
    shape = parts[0].shape
    if not shape or whole.shape != (shape[0] * len(parts), *shape[1:]):
        return False
    for joined, part in zip(np.split(whole, len(parts)), parts, strict=True):
        if np.array_equal(joined, part):  # as a rule
            continue
        gap = distance(part, joined)
        if gap.mismatch or gap.relative > SAME * roundoff(part.dtype):
            return False
    return True
