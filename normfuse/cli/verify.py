"""`normfuse verify A B`: whether two models compute the same, and if not, from where on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normfuse.cli.options import (
    CustomOps,
    Dims,
    First,
    Given,
    Inputs,
    Json,
    Locate,
    MaxMemory,
    Providers,
    Quiet,
    Second,
    Seed,
)
from normfuse.cli.parse import parsed_options, with_inputs, with_memory
from normfuse.cli.results import print_json
from normfuse.cli.standard import given_models
from normfuse.errors import CannotVerifyError, ParityError
from normfuse.streams import writing

if TYPE_CHECKING:
    from normfuse.parity.locate import Located
    from normfuse.parity.verdict import ModelVerdict


def verify(
    a: First,
    b: Second,
    ep: Providers = None,
    dim: Dims = None,
    inputs: Inputs = None,
    given: Given = None,
    custom_op_library: CustomOps = None,
    max_memory: MaxMemory = None,
    seed: Seed = 0,
    locate: Locate = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Compare what two models compute. Exit 0: they agree, 1: they differ, 4: it cannot be told."""
    options = with_inputs(parsed_options(None, ep, dim, seed, None), inputs, given, custom_op_library)
    options = with_memory(options, max_memory)
    first, second = given_models((a, b))
    from normfuse import api

    verdicts = api.verify(first, second, options)
    differ = tuple(verdict.provider for verdict in verdicts if verdict.result == "failed")
    located: list[Located] = []
    if locate and differ:
        located = api.locate(first, second, dataclasses.replace(options, providers=differ))
    if as_json:
        _print_json(a, b, verdicts, located)
    elif not quiet:
        _print(verdicts, located)
    if differ:
        return ParityError.exit_code
    return 0 if all(verdict.agrees for verdict in verdicts) else CannotVerifyError.exit_code


def _print(verdicts: Sequence[ModelVerdict], located: Sequence[Located]) -> None:
    from normfuse.report.comparison import print_verdict
    from normfuse.report.located import print_located
    from normfuse.report.printing import console

    with writing():
        for verdict in verdicts:
            print_verdict(verdict, console())
            for found in located:
                if found.provider == verdict.provider:
                    print_located(found, console())


def _print_json(a: Path, b: Path, verdicts: Sequence[ModelVerdict], located: Sequence[Located]) -> None:
    data = {
        "a": str(a),
        "b": str(b),
        "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts],
        "located": [dataclasses.asdict(found) for found in located],
    }
    print_json(data)
