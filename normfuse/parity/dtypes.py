"""What is a float, and how finely it rounds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
# Unit roundoff: half the distance from 1 to the next number.
ROUNDOFF: dict[Any, float] = {
    np.dtype(ml_dtypes.bfloat16): 2.0**-8,
    np.dtype(np.float16): 2.0**-11,
    np.dtype(np.float32): 2.0**-24,
    np.dtype(np.float64): 2.0**-53,
}


def is_float(array: Any) -> bool:
    """Whether an array is of a floating type, bfloat16 included."""
    return isinstance(array, np.ndarray) and (array.dtype.kind == "f" or array.dtype in HALVES)


def roundoff(dtype: Any) -> float:
    """Unit roundoff of a float type; 0 for integers, which are exact."""
    return ROUNDOFF.get(np.dtype(dtype), 0.0)
