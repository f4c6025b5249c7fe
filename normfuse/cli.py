"""The command line: arguments in, the API does the work, the result is printed. No logic.

    normfuse MODEL [-o OUT] …      the first word is a model, unless it is one of the commands
    normfuse inspect MODEL
    normfuse verify A B

Nothing heavy is imported before it is known what is to be done, so that --help is there at once.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normfuse.errors import CannotVerifyError, NormfuseError, ParityError, UsageError, unknown_value

if TYPE_CHECKING:
    from normfuse.options import Options
    from normfuse.report import Report

FOUND_SOMETHING = 5
INTERRUPTED = 130
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

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.", show_default=False)]
First = Annotated[Path, typer.Argument(metavar="A", help="The original.", show_default=False)]
Second = Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Where to write. Default: MODEL.fused.onnx beside it.", show_default=False
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="onnx|ort|ort-cpu|ort-cuda",
        help="What the result is for: standard operators only, or onnxruntime. Default: what --ep says.",
        show_default=False,
    ),
]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--ep",
        metavar="cpu|cuda",
        help="Execution provider to write for and to verify on; repeatable. Default: cpu.",
        show_default=False,
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of a symbolic dimension while verifying; repeatable.",
        show_default=False,
    ),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND|NODE",
        help="Leave out a kind (LayerNorm, BatchNorm, ...) or one node by name; repeatable.",
        show_default=False,
    ),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.json", help="Also write a report.", show_default=False),
]
Seed = Annotated[
    int, typer.Option(metavar="N", help="Seed of the inputs that are made for verifying.", min=0)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Do everything, verify too, but write no model.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not run the result; write it unproven.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 when a rewrite had to be taken back.")]
Check = Annotated[bool, typer.Option("--check", help="Write no model; exit 5 if there is something to fuse.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def _print_versions(wanted: bool) -> None:
    if wanted:
        typer.echo(_versions())
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_print_versions, is_eager=True, help="Print the versions in use, and exit."
    ),
]


def fuse(
    model: Model,
    out: Out = None,
    target: Target = None,
    ep: Providers = None,
    dim: Dims = None,
    skip: Skip = None,
    seed: Seed = 0,
    report: ReportFile = None,
    dry_run: DryRun = False,
    no_verify: NoVerify = False,
    strict: Strict = False,
    check: Check = False,
    quiet: Quiet = False,
    version: Version = False,
) -> int:
    """Fuse every normalization of an ONNX model, fold its BatchNorms, prove the result, and write it."""
    options = _options(target, ep, dim, seed, skip, verify=not no_verify, dry_run=dry_run)
    _check_report_path(report)
    if check and out is not None:
        raise UsageError("--check writes no model, so it does not go with --out")
    if check:
        return _check(model, options, report, quiet)
    from normfuse import api

    try:
        with _progress(quiet) as progress:
            result = api.optimize(model, out, options, progress)
    except ParityError as error:
        if error.report is not None:
            _hand_over(error.report, report, quiet)
        raise
    _hand_over(result.report, report, quiet)
    return ParityError.exit_code if strict and result.report.count("rolled-back") else 0


def inspect(model: Model, target: Target = None, ep: Providers = None, as_json: Json = False) -> int:
    """List every candidate of a model: what it is, whether it would be fused, why not, and what to do."""
    options = _options(target, ep, None, 0, None)
    from normfuse import api

    report = api.inspect(model, options)
    if as_json:
        from normfuse.report.json_report import to_json

        sys.stdout.write(to_json(report.to_dict()))
    else:
        from normfuse.report.inspection import print_inspection
        from normfuse.report.printing import console

        print_inspection(report, console())
    return 0


def verify(
    a: First, b: Second, ep: Providers = None, dim: Dims = None, seed: Seed = 0, quiet: Quiet = False
) -> int:
    """Compare what two models compute. Exit 0: they agree, 1: they differ, 4: it cannot be told."""
    options = _options(None, ep, dim, seed, None)
    from normfuse import api

    verdicts = api.verify(a, b, options)
    if not quiet:
        from normfuse.report.comparison import print_verdict
        from normfuse.report.printing import console

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


def _check(model: Path, options: Options, report_path: Path | None, quiet: bool) -> int:
    from normfuse import api
    from normfuse.report.inspection import print_outlook
    from normfuse.report.printing import console, print_head

    report = api.inspect(model, options)
    _write_report(report, report_path)
    if not quiet:
        print_head(report, console())
        print_outlook(report, console())
    return FOUND_SOMETHING if report.changed else 0


def _hand_over(report: Report, path: Path | None, quiet: bool) -> None:
    """Print the summary, and write the report where one is wanted."""
    _write_report(report, path)
    if not quiet:
        from normfuse.report.printing import console
        from normfuse.report.summary import print_summary

        print_summary(report, console())


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


def _versions() -> str:
    from importlib.metadata import PackageNotFoundError, version

    from normfuse import __version__

    lines = [f"normfuse {__version__}"]
    for package in ("onnx", "onnx-ir", "onnxruntime", "onnxruntime-gpu"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    try:
        import onnxruntime
    except ImportError:
        lines.append("no onnxruntime: pip install normfuse[cpu] or normfuse[cuda]")
    else:
        lines.append(f"providers: {', '.join(onnxruntime.get_available_providers())}")
    return "\n".join(lines)


# -- entry ------------------------------------------------------------------------------------------------


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


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
        # The reader has seen enough (`| head`); Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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

    print(f"error: {printable(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {printable(hint)}", file=sys.stderr)
    return code
