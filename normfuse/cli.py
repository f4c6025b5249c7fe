"""The command line: arguments in, the API does the work, the result is printed. No logic.

    normfuse MODEL [-o OUT] …      the first word is a model, unless it is one of the commands
    normfuse - -o - < in > out     a model may come from and go to a stream
    normfuse inspect MODEL
    normfuse verify A B

Nothing heavy is imported before it is known what is to be done, so that --help is there at once.
"""

from __future__ import annotations

import dataclasses
import gc
import io
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from normfuse.cli_options import (
    Check,
    CopyData,
    Dims,
    DryRun,
    First,
    Given,
    InPlace,
    Inputs,
    Json,
    Model,
    NoVerify,
    Out,
    Providers,
    Quiet,
    ReportFile,
    Second,
    Seed,
    Skip,
    Strict,
    Target,
    Version,
)
from normfuse.errors import CannotVerifyError, NormfuseError, ParityError, UsageError, unknown_value
from normfuse.streams import let_go, writing

if TYPE_CHECKING:
    from normfuse.options import Options
    from normfuse.report import Report

FOUND_SOMETHING = 5
INTERRUPTED = 130
STREAM = "-"
PROVIDERS = ("cpu", "cuda")
_OTHER_COMMANDS = """
\b
Other commands, each with its own --help:
  normfuse inspect MODEL    every candidate, and why it would be fused or not
  normfuse verify A B       whether two models compute the same
A model that is called like a command: ./inspect

\b
Exit codes: 0 done, 1 the result differs, 2 usage, 3 the input is no valid model,
4 it could not be verified, 5 --check found something to fuse.
"""


def fuse(
    model: Model,
    out: Out = None,
    target: Target = None,
    ep: Providers = None,
    dim: Dims = None,
    inputs: Inputs = None,
    given: Given = None,
    skip: Skip = None,
    seed: Seed = 0,
    report: ReportFile = None,
    in_place: InPlace = False,
    copy_data: CopyData = False,
    dry_run: DryRun = False,
    no_verify: NoVerify = False,
    strict: Strict = False,
    check: Check = False,
    quiet: Quiet = False,
    version: Version = False,
) -> int:
    """Fuse every normalization of an ONNX model, fold its BatchNorms, prove the result, and write it."""
    options = _options(target, ep, dim, seed, skip, verify=not no_verify, dry_run=dry_run)
    options = dataclasses.replace(options, in_place=in_place, copy_data=copy_data)
    options = _with_inputs(options, inputs, given)
    _check_report_path(report)
    _check_destination(model, out, options, check=check)
    if check:
        return _check(_given(model), options, report, quiet)
    from normfuse import api

    to_stdout = out is not None and str(out) == STREAM
    try:
        with _progress(quiet) as progress:
            result = api.optimize(_given(model), _standard_output() if to_stdout else out, options, progress)
    except ParityError as error:
        if error.report is not None:
            _hand_over(error.report, report, quiet, aside=to_stdout)
        raise
    except BrokenPipeError:  # the reader of the model is gone, so nobody waits for the summary either
        let_go()
        return 0
    if to_stdout and not dry_run:
        result = dataclasses.replace(
            result, report=dataclasses.replace(result.report, written="standard output")
        )
    _hand_over(result.report, report, quiet, aside=to_stdout)
    return ParityError.exit_code if strict and result.report.count("rolled-back") else 0


def inspect(model: Model, target: Target = None, ep: Providers = None, as_json: Json = False) -> int:
    """List every candidate of a model: what it is, whether it would be fused, why not, and what to do."""
    options = _options(target, ep, None, 0, None)
    from normfuse import api

    report = api.inspect(_given(model), options)
    if as_json:
        from normfuse.report.json_report import to_json

        with writing():
            sys.stdout.write(to_json(report.to_dict()))
    else:
        from normfuse.report.inspection import print_inspection
        from normfuse.report.printing import console

        with writing():
            print_inspection(report, console())
    return 0


def verify(
    a: First,
    b: Second,
    ep: Providers = None,
    dim: Dims = None,
    inputs: Inputs = None,
    given: Given = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> int:
    """Compare what two models compute. Exit 0: they agree, 1: they differ, 4: it cannot be told."""
    options = _with_inputs(_options(None, ep, dim, seed, None), inputs, given)
    from normfuse import api

    if str(a) == str(b) == STREAM:
        raise UsageError("only one of the two models can come from standard input")
    verdicts = api.verify(_given(a), _given(b), options)
    if not quiet:
        from normfuse.report.comparison import print_verdict
        from normfuse.report.printing import console

        with writing():
            for verdict in verdicts:
                print_verdict(verdict, console())
    if any(verdict.result == "failed" for verdict in verdicts):
        return ParityError.exit_code
    return 0 if all(verdict.agrees for verdict in verdicts) else CannotVerifyError.exit_code


def _options(
    target: str | None,
    ep: list[str] | None,
    dim: list[str] | None,
    seed: int,
    skip: list[str] | None,
    *,
    verify: bool = True,
    dry_run: bool = False,
) -> Options:
    """The options of the API; a value that does not exist is an error with the closest one that does."""
    from normfuse.options import Options
    from normfuse.targets.target import TARGETS

    if target is not None and target not in TARGETS:
        raise unknown_value("--target", target, TARGETS)
    for provider in ep or ():
        if provider not in PROVIDERS:
            raise unknown_value("--ep", provider, PROVIDERS)
    return Options(
        target=target,
        providers=tuple(dict.fromkeys(ep or ("cpu",))),
        dims=dict(_dim(text) for text in dim or ()),
        verify=verify,
        skip=tuple(skip or ()),
        seed=seed,
        dry_run=dry_run,
    )


def _dim(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not (name and equals and value.isascii() and value.isdigit()):
        raise UsageError(f"--dim {text!r} is not NAME=SIZE", hint="for example --dim batch=2")
    return name, int(value)


def _with_inputs(options: Options, inputs: Path | None, given: list[str] | None) -> Options:
    """The options with what the verification is to run on."""
    if inputs is not None and given:
        raise UsageError("--inputs gives all inputs, so it does not go with --input")
    return dataclasses.replace(options, inputs=inputs, given=dict(_recipe(text) for text in given or ()))


def _recipe(text: str) -> tuple[str, str]:
    # A name may hold an equals sign, a recipe hardly ever does.
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise UsageError(f"--input {text!r} is not NAME=HOW", hint="for example --input x=random:0:1")
    return name, value


def _check_destination(model: Path, out: Path | None, options: Options, *, check: bool) -> None:
    """Contradictions, found before anything is read."""
    if check and (out is not None or options.in_place):
        raise UsageError(
            f"--check writes no model, so it does not go with {'--in-place' if out is None else '--out'}"
        )
    if options.in_place and out is not None:
        raise UsageError("--in-place replaces the model itself, so it does not go with --out")
    if str(model) != STREAM:
        return
    if options.in_place:
        raise UsageError("standard input cannot be replaced with --in-place", hint="name an output with -o")
    if out is None and not check and not options.dry_run:
        raise UsageError(
            "a model from standard input needs an output", hint="-o FILE, or -o - for standard output"
        )


def _given(model: Path) -> Path | bytes:
    """The model as the API takes it: a path, or what standard input holds."""
    if str(model) != STREAM:
        return model
    if sys.stdin.isatty():
        raise UsageError("a model is not typed in by hand", hint="normfuse - < model.onnx")
    return sys.stdin.buffer.read()


def _standard_output() -> BinaryIO:
    if sys.stdout.isatty():
        raise UsageError("a model is not written to a terminal", hint="normfuse … -o - > model.onnx")
    return sys.stdout.buffer


def _check(model: Path | bytes, options: Options, report_path: Path | None, quiet: bool) -> int:
    from normfuse import api
    from normfuse.report.inspection import print_outlook
    from normfuse.report.printing import console, print_head

    report = api.inspect(model, options)
    _write_report(report, report_path)
    if not quiet:
        with writing():
            print_head(report, console())
            print_outlook(report, console())
    return FOUND_SOMETHING if report.changed else 0


def _hand_over(report: Report, path: Path | None, quiet: bool, *, aside: bool = False) -> None:
    """Print the summary, and write the report where one is wanted.

    aside: on stderr, since stdout holds the model.
    """
    _write_report(report, path)
    if not quiet:
        from normfuse.report.printing import console
        from normfuse.report.summary import print_summary

        with writing():
            print_summary(report, console(stderr=aside))


def _check_report_path(path: Path | None) -> None:
    """Found out now, not after minutes of work."""
    if path is None:
        return
    if path.suffix.lower() != ".json":
        raise UsageError(f"cannot write the report {str(path)!r}: it must end in .json")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"cannot write the report {str(path)!r}: there is no folder {str(path.parent)!r}")


def _write_report(report: Report, path: Path | None) -> None:
    if path is not None:
        from normfuse.report.json_report import write_json

        write_json(report, path)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Shows the current step on a terminal; nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from normfuse.report.live import Live

    with Live() as live:
        yield live.step


# -- entry ------------------------------------------------------------------------------------------------


def main() -> None:
    """The console script."""
    code = run(sys.argv[1:])
    gc.freeze()  # the process ends: taking the graph of a large model apart first would take seconds
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Whatever is wrong with the input is one line on stderr."""
    logging.basicConfig(level=logging.ERROR)  # libraries warn of what is reported here in other words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show
    function, name, rest = _command(arguments)
    try:
        result = _typer(function).main(args=rest, prog_name=name, standalone_mode=False)
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


_COMMANDS: dict[str, Callable[..., int]] = {"inspect": inspect, "verify": verify}
_CLICK_EXCEPTION: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)


def _command(arguments: Sequence[str]) -> tuple[Callable[..., int], str, list[str]]:
    """The first word is a command if it is one of these, else everything belongs to the main one."""
    if arguments and arguments[0] in _COMMANDS:
        return _COMMANDS[arguments[0]], f"normfuse {arguments[0]}", list(arguments[1:])
    return fuse, "normfuse", list(arguments) or ["--help"]


def _typer(function: Callable[..., int]) -> Any:
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.command(epilog=_OTHER_COMMANDS if function is fuse else None)(function)
    return typer.main.get_command(app)


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
