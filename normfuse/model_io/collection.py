"""Garbage collection, paused while a graph is built or rewritten.

That makes many objects and little garbage: looking for it again and again, over all nodes of a large model,
takes more than half of the time. Tensors are not in cycles, so they are freed without it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause it; afterwards it is as it was."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
