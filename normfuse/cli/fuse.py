"""`normfuse MODEL`: fuse, fold, verify, write; with `--check`, only say whether there is anything to do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from normfuse.cli.many import FOUND_SOMETHING, Many, is_many, run_many
from normfuse.cli.options import (
    Check,
    CopyData,
    CustomOps,
    Dask,
    Dims,
    DryRun,
    Given,
    InPlace,
    Inputs,
    Jobs,
    MaxMemory,
    MaxOpset,
    Models,
    NoVerify,
    Out,
    PlanFile,
    Providers,
    Quiet,
    Recursive,
    ReportFiles,
    Seed,
    Skip,
    Strict,
    Target,
    Tune,
    TuneThreads,
    Version,
)
from normfuse.cli.parse import parsed_options, with_inputs, with_lowerings, with_memory
from normfuse.cli.results import Reports, hand_over, progress_shown
from normfuse.cli.standard import STREAM, given_model, standard_output
from normfuse.errors import CannotVerifyError, NormfuseError, ParityError, UsageError
from normfuse.streams import let_go, writing

if TYPE_CHECKING:
    from normfuse.options import Options


def fuse(
    context: typer.Context,
    models: Models,
    out: Out = None,
    target: Target = None,
    max_opset: MaxOpset = None,
    ep: Providers = None,
    dim: Dims = None,
    inputs: Inputs = None,
    given: Given = None,
    custom_op_library: CustomOps = None,
    max_memory: MaxMemory = None,
    skip: Skip = None,
    seed: Seed = 0,
    tune: Tune = False,
    plan: PlanFile = None,
    threads: TuneThreads = None,
    report: ReportFiles = None,
    in_place: InPlace = False,
    copy_data: CopyData = False,
    dry_run: DryRun = False,
    no_verify: NoVerify = False,
    strict: Strict = False,
    check: Check = False,
    recursive: Recursive = False,
    jobs: Jobs = 1,
    dask: Dask = None,
    quiet: Quiet = False,
    version: Version = False,
) -> int:
    """Fuse every normalization of an ONNX model, fold its BatchNorms, prove the result, and write it."""
    options = parsed_options(
        target, ep, dim, seed, skip, max_opset=max_opset, verify=not no_verify, dry_run=dry_run
    )
    options = dataclasses.replace(options, in_place=in_place, copy_data=copy_data)
    options = with_memory(with_inputs(options, inputs, given, custom_op_library), max_memory)
    options = with_lowerings(options, tune, plan, threads, several=is_many(models))
    if tune and (check or jobs > 1 or dask is not None):
        raise UsageError(f"--tune measures, so it does not go with {_disturbing(check, jobs)}")
    files = Reports.of(report, str(context.obj))
    options = dataclasses.replace(options, illustrated=files.illustrated)
    _check_names(models)
    _check_destination(models[0], out, options, check=check)
    if is_many(models):
        many = Many(tuple(models), out, recursive, jobs, dask)
        found, code = run_many(many, options, check=check, strict=strict, quiet=quiet)
        files.write(found)
        return code
    try:
        if check:
            return _check(given_model(models[0]), options, files, quiet)
        return _fuse_one(models[0], out, options, files, strict=strict, quiet=quiet)
    except NormfuseError as error:
        files.write_failure(str(models[0]), error)
        raise


def _disturbing(check: bool, jobs: int) -> str:
    return "--check, which runs nothing" if check else "--jobs" if jobs > 1 else "--dask"


def _fuse_one(
    model: Path, out: Path | None, options: Options, files: Reports, *, strict: bool, quiet: bool
) -> int:
    from normfuse import api

    to_stdout = out is not None and str(out) == STREAM
    try:
        with progress_shown(quiet) as progress:
            result = api.optimize(
                given_model(model), standard_output() if to_stdout else out, options, progress
            )
    except (ParityError, CannotVerifyError) as error:
        if error.report is not None:
            hand_over(error.report, files, quiet, aside=to_stdout)
        raise
    except BrokenPipeError:  # the reader of the model is gone, so nobody waits for the summary either
        let_go()
        return 0
    if to_stdout and not options.dry_run:
        result = dataclasses.replace(
            result, report=dataclasses.replace(result.report, written="standard output")
        )
    hand_over(result.report, files, quiet, aside=to_stdout)
    return ParityError.exit_code if strict and result.report.count("rolled-back") else 0


def _check_names(models: list[Path]) -> None:
    """A word that is no file may be a command with a slip; nothing is written for it."""
    from difflib import get_close_matches

    from normfuse.cli.entry import COMMANDS

    for model in models:
        near = [] if model.exists() else get_close_matches(str(model), COMMANDS, n=1, cutoff=0.7)
        if near and (len(models) > 1 or str(model) != near[0]):
            raise UsageError(
                f"there is no file {str(model)!r}", hint=f"did you mean the command: normfuse {near[0]} …?"
            )


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


def _check(model: Path | bytes, options: Options, files: Reports, quiet: bool) -> int:
    from normfuse import api
    from normfuse.report.inspection import print_outlook
    from normfuse.report.printing import console, print_head

    report = api.inspect(model, options)
    files.write(report)
    if not quiet:
        with writing():
            print_head(report, console())
            print_outlook(report, console())
            if report.changed:
                console().print("  normfuse MODEL --in-place does it; normfuse inspect MODEL says where")
    return FOUND_SOMETHING if report.changed else 0
