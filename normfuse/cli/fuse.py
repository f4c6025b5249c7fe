"""`normfuse MODEL`: fuse, fold, verify, write; with `--check`, only say whether there is anything to do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from normfuse.cli.options import (
    Check,
    CopyData,
    Dims,
    DryRun,
    Given,
    InPlace,
    Inputs,
    Model,
    NoVerify,
    Out,
    Providers,
    Quiet,
    ReportFile,
    Seed,
    Skip,
    Strict,
    Target,
    Version,
)
from normfuse.cli.parse import parsed_options, with_inputs
from normfuse.cli.results import check_report_path, hand_over, progress_shown, write_report
from normfuse.cli.standard import STREAM, given_model, standard_output
from normfuse.errors import ParityError, UsageError
from normfuse.streams import let_go, writing

if TYPE_CHECKING:
    from normfuse.options import Options

FOUND_SOMETHING = 5


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
    options = parsed_options(target, ep, dim, seed, skip, verify=not no_verify, dry_run=dry_run)
    options = dataclasses.replace(options, in_place=in_place, copy_data=copy_data)
    options = with_inputs(options, inputs, given)
    check_report_path(report)
    _check_destination(model, out, options, check=check)
    if check:
        return _check(given_model(model), options, report, quiet)
    from normfuse import api

    to_stdout = out is not None and str(out) == STREAM
    try:
        with progress_shown(quiet) as progress:
            result = api.optimize(
                given_model(model), standard_output() if to_stdout else out, options, progress
            )
    except ParityError as error:
        if error.report is not None:
            hand_over(error.report, report, quiet, aside=to_stdout)
        raise
    except BrokenPipeError:  # the reader of the model is gone, so nobody waits for the summary either
        let_go()
        return 0
    if to_stdout and not dry_run:
        result = dataclasses.replace(
            result, report=dataclasses.replace(result.report, written="standard output")
        )
    hand_over(result.report, report, quiet, aside=to_stdout)
    return ParityError.exit_code if strict and result.report.count("rolled-back") else 0


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


def _check(model: Path | bytes, options: Options, report_path: Path | None, quiet: bool) -> int:
    from normfuse import api
    from normfuse.report.inspection import print_outlook
    from normfuse.report.printing import console, print_head

    report = api.inspect(model, options)
    write_report(report, report_path)
    if not quiet:
        with writing():
            print_head(report, console())
            print_outlook(report, console())
    return FOUND_SOMETHING if report.changed else 0
