"""Models that come from standard input or go to standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from normfuse.errors import UsageError

STREAM = "-"


def given_model(model: Path) -> Path | bytes:
    """The model as the API takes it: a path, or what standard input holds."""
    if str(model) != STREAM:
        return model
    if sys.stdin.isatty():
        raise UsageError("a model is not typed in by hand", hint="normfuse - < model.onnx")
    return sys.stdin.buffer.read()


def standard_output() -> BinaryIO:
    """The stream that a model is written to; UsageError where it is a terminal."""
    if sys.stdout.isatty():
        raise UsageError("a model is not written to a terminal", hint="normfuse … -o - > model.onnx")
    return sys.stdout.buffer
