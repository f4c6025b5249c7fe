"""Option texts into the options of the API; a value that does not exist names the closest one that does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from normfuse.errors import UsageError, unknown_value

if TYPE_CHECKING:
    from normfuse.options import Options

PROVIDERS = ("cpu", "cuda")


def parsed_options(
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


def with_inputs(options: Options, inputs: Path | None, given: list[str] | None) -> Options:
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
