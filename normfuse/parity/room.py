"""Arrays that no memory holds: one kind of error for them, where numpy has three."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from normfuse.errors import CannotVerifyError

# Bytes of an element with its float64 copy.
ELEMENT = 16


def check_room(shape: Sequence[int]) -> None:
    """Raise MemoryError for a shape beyond what can be addressed, before numpy says it in other words."""
    if math.prod(shape) > sys.maxsize // ELEMENT:
        raise MemoryError(f"shape {list(shape)}")


@contextmanager
def within_memory() -> Iterator[None]:
    """What runs out of memory could not be verified; it proves nothing about the rewrite."""
    try:
        yield
    except MemoryError as error:
        raise CannotVerifyError(
            f"there is not enough memory to compare the models ({error or 'out of memory'})",
            hint="give smaller sizes with --dim NAME=SIZE",
        ) from error
