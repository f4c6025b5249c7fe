"""Models that come from standard input or go to standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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


def given_models(models: Sequence[Path]) -> list[Path | bytes]:
    """The same for several models, of which standard input can hold one."""
    if sum(str(model) == STREAM for model in models) > 1:
        raise UsageError("only one of the models can come from standard input")
    return [given_model(model) for model in models]


def standard_output() -> BinaryIO:
    """The stream that a model is written to; UsageError where it is a terminal."""
    if sys.stdout.isatty():
        raise UsageError("a model is not written to a terminal", hint="normfuse … -o - > model.onnx")
    return sys.stdout.buffer
