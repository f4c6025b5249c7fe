"""How far two results lie apart: absolute, relative, ulp, cosine, and non-finite values position by position.

Distances are relative to a magnitude that fits the element: the largest value of the tensor, or, for the few
elements that tower over the rest (a mask of -1e9, an outlier), the element itself. So neither a small value
that is the difference of two large ones nor a huge fill value spoils the measure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from normfuse.parity.dtypes import is_float
from normfuse.parity.noise import WORDS
from normfuse.parity.settings import Array

TOWERING = 1e3


@dataclass(frozen=True)
class Distance:
    """How two arrays compare.

    relative: largest distance over `magnitude`; for integers and strings the share of elements that differ.
    non_finite: positions at which both hold the same NaN or infinity.
    mismatch: why they cannot be equal whatever the bound (shape, type, a one-sided NaN), or "".
    """

    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    cosine: float = 1.0
    non_finite: int = 0
    one_sided: int = 0
    size: int = 0
    mismatch: str = ""


def magnitude(values: Array) -> Any:
    """The size that each element's error is measured against."""
    size = np.abs(values.astype(np.float64))
    finite = size[np.isfinite(size) & (size > 0)]
    if finite.size == 0:
        return np.full(size.shape, np.finfo(np.float32).tiny)
    ordinary = finite[finite <= TOWERING * np.median(finite)]
    return np.maximum(np.where(np.isfinite(size), size, 0), ordinary.max())


def distance(before: Array, after: Array) -> Distance:
    """Compare a result with the baseline it should equal."""
    if before.shape != after.shape:
        return Distance(relative=np.inf, mismatch=f"shape {list(before.shape)} became {list(after.shape)}")
    if before.dtype != after.dtype:
        return Distance(relative=np.inf, mismatch=f"type {before.dtype} became {after.dtype}")
    if before.size == 0:
        return Distance()
    return _float_distance(before, after) if is_float(before) else _exact_distance(before, after)


def _exact_distance(before: Array, after: Array) -> Distance:
    differ = before != after
    absolute = 0.0
    if before.dtype.kind in "iu" and differ.any():
        absolute = float(np.abs(before.astype(np.float64) - after.astype(np.float64)).max())
    return Distance(absolute, float(differ.mean()), size=before.size)


def _float_distance(before: Array, after: Array) -> Distance:
    a, b = before.astype(np.float64), after.astype(np.float64)
    same = _same_non_finite(a, b)
    wrong = ~(np.isfinite(a) & np.isfinite(b)) & ~same
    mismatch = _first_one_sided(a, b, wrong) if wrong.any() else ""
    usable = np.isfinite(a) & np.isfinite(b)
    with np.errstate(over="ignore"):
        gap = np.where(usable, np.abs(np.where(usable, a, 0) - np.where(usable, b, 0)), 0)
    return Distance(
        absolute=float(gap.max()),
        relative=float((gap / magnitude(before)).max()),
        ulp=_ulps(before, after, usable),
        cosine=_cosine(a[usable], b[usable]),
        non_finite=int(same.sum()),
        one_sided=int(wrong.sum()),
        size=before.size,
        mismatch=mismatch,
    )


def _same_non_finite(a: Any, b: Any) -> Any:
    return (np.isnan(a) & np.isnan(b)) | (np.isinf(a) & (a == b))


def _first_one_sided(a: Any, b: Any, wrong: Any) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{a[at]:.6g} became {b[at]:.6g} at {list(at)} ({int(wrong.sum())} of {wrong.size} such elements)"


def _ulps(before: Array, after: Array, usable: Any) -> float:
    """Largest number of representable values between two results (0 and -0 are one)."""
    counts = []
    for array in (before, after):
        words = np.ascontiguousarray(array).view(WORDS[array.dtype.itemsize]).reshape(array.shape)
        size = (words & np.iinfo(words.dtype).max).astype(np.int64)
        counts.append(np.where(words < 0, -size, size))
    # In float64 the two counts may lie further apart than int64 can hold; then the exact gap does not matter.
    rough = np.abs(counts[0].astype(np.float64) - counts[1].astype(np.float64))
    exact = np.abs(counts[0] - counts[1]).astype(np.float64)
    return float(np.where(usable, np.where(rough < 2.0**62, exact, rough), 0).max())


def _cosine(a: Any, b: Any) -> float:
    top = max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    if top == 0:
        return 1.0
    a, b = a / top, b / top
    norms = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum() / norms) if norms > 0 else 0.0


def is_degenerate(array: Array) -> bool:
    """Whether a result proves nothing: more than one element, and all of them equal or none finite."""
    if array.size < 2:
        return False
    if is_float(array) and not np.isfinite(array.astype(np.float64)).any():
        return True
    return bool((array == array.reshape(-1)[0]).all())
