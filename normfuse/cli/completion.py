"""Shell completion, with typer's own scripts (`normfuse --install-completion`).

The scripts hand over all words of the line. Where the first of them is a command, it is taken out again, as
it is from the line itself, and the rest completes as that command's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence

VARIABLE = "_NORMFUSE_COMPLETE"
_LINE = "_TYPER_COMPLETE_ARGS"  # zsh, fish, PowerShell: the line up to the cursor


def command_to_complete(
    commands: Sequence[str], environ: MutableMapping[str, str] = os.environ
) -> str | None:
    """The command whose words are being completed, "" for the main one; None where nothing is.

    commands: all of them. environ: of the process; the command's own word is taken out of what it holds.
    """
    if VARIABLE not in environ:
        return None
    words = _words(environ)
    if len(words) < 3 or words[1] not in commands:  # the command itself may still be typed
        return ""
    if "COMP_WORDS" in environ:
        environ["COMP_WORDS"] = " ".join([words[0], *words[2:]])
        environ["COMP_CWORD"] = str(int(environ["COMP_CWORD"]) - 1)
    if _LINE in environ:
        environ[_LINE] = environ[_LINE].replace(f" {words[1]} ", " ", 1)
    return words[1]


def _words(environ: Mapping[str, str]) -> list[str]:
    if "COMP_WORDS" in environ:
        words = environ["COMP_WORDS"].split()
        return words if int(environ["COMP_CWORD"]) < len(words) else [*words, ""]
    line = environ.get(_LINE, "")
    return [*line.split(), ""] if line.endswith(" ") else line.split()


def among(choices: Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """Completes a value from a list that is made when it is needed."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices() if choice.startswith(incomplete)]

    return complete


def commands() -> Sequence[str]:
    """All commands."""
    from normfuse.cli.entry import COMMANDS

    return COMMANDS


def targets() -> Sequence[str]:
    """The values of --target."""
    from normfuse.targets import TARGETS

    return list(TARGETS)


def providers() -> Sequence[str]:
    """The values of --ep that are known without asking the runtime."""
    from normfuse.parity.providers import INSTALL

    return list(INSTALL)


def kinds() -> Sequence[str]:
    """The kinds that --skip takes."""
    from normfuse.options import KINDS

    return KINDS


def reasons() -> Sequence[str]:
    """All reason codes."""
    from normfuse.norms.refusal import REASONS

    return list(REASONS)
