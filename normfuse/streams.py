"""Standard output that breaks: a reader that has seen enough (`| head`), a disk that is full."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from normfuse.errors import UsageError


@contextmanager
def writing() -> Iterator[None]:
    """Around what prints: a reader that has seen enough (`| head`) is no error, a full disk is one line."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        let_go()
    except OSError as error:
        let_go()
        raise UsageError(f"cannot write to standard output: {error.strerror or error}") from error


def let_go() -> None:
    """What is still buffered for standard output goes nowhere, or Python would complain when it ends."""
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
