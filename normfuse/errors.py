"""Errors for users: what is wrong, in which file or node, and what to do.

Every error carries the exit code that the command line ends with:
1 parity failed, 2 usage, 3 the input cannot be read or is invalid, 4 it could not be verified.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class NormfuseError(Exception):
    """Base of every error that normfuse raises on purpose; its text is one clear message.

    hint: what the user can do about it; printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class _UnprovenError(NormfuseError):
    """A result that is not shown to be right.

    report: the `Report` of the run, where there is one, so that it can still be written.
    """

    def __init__(self, message: str = "", hint: str = "", report: Any = None) -> None:
        super().__init__(message, hint)
        self.report = report


class ParityError(_UnprovenError):
    """The rewritten model does not compute what the original does; nothing was written.

    report: the `Report` of the run that failed, where there is one.
    """

    exit_code = 1


class UsageError(NormfuseError):
    """An option has no such value, or two options contradict each other."""

    exit_code = 2


class InputError(NormfuseError):
    """The model cannot be read, or is not a valid ONNX model."""

    exit_code = 3


class CannotVerifyError(_UnprovenError):
    """No runtime, a provider that is not active, a custom operator: the result could not be checked.

    report: the `Report` of the run, where there is one.
    """

    exit_code = 4


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the closest of the known names; "" where none is close."""
    from difflib import get_close_matches  # only loaded on the way to an error

    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def unknown_value(what: str, value: str, known: Iterable[str]) -> UsageError:
    """The error for an option value that does not exist, with the closest one that does."""
    from difflib import get_close_matches  # only loaded on the way to an error

    choices = sorted(set(known))
    closest = get_close_matches(value.lower(), [choice.lower() for choice in choices], n=1, cutoff=0.5)
    meant = next((c for c in choices if closest and c.lower() == closest[0]), None)
    if meant is not None:
        hint = f"did you mean {meant!r}?"
    elif len(choices) <= 12:
        hint = f"known: {', '.join(choices)}"
    else:
        hint = f"known: {', '.join(choices[:12])} and {len(choices) - 12} more"
    return UsageError(f"unknown {what} {value!r}", hint=hint)
