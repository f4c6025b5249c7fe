"""What a library means by its exception, in one line for the user."""

from __future__ import annotations

import onnx_ir as ir

_LONGEST = 200


def cause(error: BaseException) -> str:
    """The innermost reason: onnx-ir wraps it once for each level of nesting."""
    while isinstance(error, ir.serde.SerdeError) and error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, not too long."""
    lines = str(error).strip().splitlines()
    return lines[0][:_LONGEST] if lines else type(error).__name__
