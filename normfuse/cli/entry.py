"""From the words of a command line to the command, and from its end to the exit code.

    normfuse MODEL [-o OUT] …      the first word is a model, unless it is one of the commands
    normfuse inspect MODEL
    normfuse verify A B

Only the command that is asked for is imported, so that --help is there at once.
"""

from __future__ import annotations

import functools
import gc
import importlib
import io
import logging
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import typer
import typer.completion

from normfuse.cli.completion import VARIABLE, command_to_complete
from normfuse.errors import NormfuseError, UsageError
from normfuse.streams import let_go, writing

INTERRUPTED = 130
MAIN = "fuse"
COMMANDS = ("inspect", "verify", "bench", "explain")
_WITHOUT_MODELS = ("explain",)
_OTHER_COMMANDS = """
\b
Other commands, each with its own --help:
  normfuse inspect MODEL    every candidate, and why it would be fused or not
  normfuse verify A B       whether two models compute the same
  normfuse bench A [B ...]  the latency of models side by side
  normfuse explain [CODE]   what a reason code means, and what to do
A model that is called like a command: ./inspect

\b
Exit codes: 0 done, 1 the result differs, 2 usage, 3 the input is no valid model,
4 it could not be verified, 5 --check found something to fuse.
"""


def main() -> None:
    """The console script."""
    gc.disable()  # until a command is loaded: modules are many objects and no garbage (`_loaded`)
    code = run(sys.argv[1:])
    gc.freeze()  # the process ends: taking the graph of a large model apart first would take seconds
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Whatever is wrong with the input is one line on stderr."""
    logging.basicConfig(level=logging.ERROR)  # libraries warn of what is reported here in other words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show
    name, rest = _command(arguments)
    completing = command_to_complete(COMMANDS)
    if completing is not None:
        typer.completion.completion_init()  # type: ignore[attr-defined]  # public, but not re-exported
        name = completing or MAIN
    program = "normfuse" if name == MAIN else f"normfuse {name}"
    try:
        parser = _typer(name)
        result = parser.main(
            args=rest,
            prog_name=program,
            standalone_mode=False,
            complete_var=VARIABLE,
            obj=shlex.join(("normfuse", *arguments)),
        )
    except NormfuseError as error:
        return _fail(str(error), error.hint, error.exit_code)
    except _CLICK_EXCEPTION as error:
        return _fail(*_words(error), UsageError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", "", INTERRUPTED)
    except BrokenPipeError:
        let_go()
        return 0
    return result if isinstance(result, int) else 0


_CLICK_EXCEPTION: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)


def _command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The first word is a command if it is one of these, else everything belongs to the main one."""
    if arguments and arguments[0] in COMMANDS:
        return arguments[0], list(arguments[1:])
    return MAIN, list(arguments) or ["--help"]


def _typer(name: str) -> Any:
    """The parser of a command: its module holds a function of the same name."""
    function: Callable[..., int] = getattr(importlib.import_module(f"normfuse.cli.{name}"), name)
    app = typer.Typer(
        add_completion=name == MAIN,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(epilog=_OTHER_COMMANDS if name == MAIN else None)(_loaded(name, function))
    return typer.main.get_command(app)


def _loaded(name: str, function: Callable[..., int]) -> Callable[..., int]:
    """A command that is loaded whole before it begins; then garbage is looked for in what it makes."""

    @functools.wraps(function)
    def command(*words: Any, **options: Any) -> int:
        if name not in _WITHOUT_MODELS:
            importlib.import_module("normfuse.api")
        if not gc.isenabled():
            gc.freeze()
            if not _only_rewrites(options):
                gc.enable()
        return function(*words, **options)

    return command


def _only_rewrites(options: Mapping[str, Any]) -> bool:
    """Whether one model is rewritten, once: its graph is nearly all there is, and lives to the end."""
    if not options.get("no_verify") or options["tune"]:
        return False
    from normfuse.cli.many import is_many

    return not is_many(options["models"])


def _words(error: Exception) -> tuple[str, str]:
    """What typer has to say, as message and hint."""
    message = str(getattr(error, "format_message", lambda: error)())
    message, bracket, options = message.partition(" (Possible options: ")
    if bracket:
        return message, f"did you mean {options.rstrip(')')}?"
    return message, "normfuse --help lists the options"


def _fail(message: str, hint: str, code: int) -> int:
    from normfuse.report.text import printable

    with suppress(UsageError), writing():
        pass  # what standard output could not take is dropped
    print(f"error: {printable(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {printable(hint)}", file=sys.stderr)
    return code
