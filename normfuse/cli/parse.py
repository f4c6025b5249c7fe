"""Option texts into the options of the API; a value that does not exist names the closest one that does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from normfuse.errors import UsageError, unknown_value

if TYPE_CHECKING:
    from normfuse.options import Options


def parsed_options(
    target: str | None,
    ep: list[str] | None,
    dim: list[str] | None,
    seed: int,
    skip: list[str] | None,
    *,
    max_opset: int | None = None,
    verify: bool = True,
    dry_run: bool = False,
) -> Options:
    """The options of the API; a value that does not exist is an error with the closest one that does."""
    from normfuse.options import Options
    from normfuse.targets import TARGETS

    if target is not None and target not in TARGETS:
        raise unknown_value("--target", target, TARGETS)
    return Options(
        target=target,
        max_opset=max_opset,
        providers=_providers(ep),
        dims=dict(_dim(text) for text in dim or ()),
        verify=verify,
        skip=tuple(skip or ()),
        seed=seed,
        dry_run=dry_run,
    )


def _providers(ep: list[str] | None) -> tuple[str, ...]:
    if not ep:
        return ("cpu",)
    from normfuse.parity.providers import short_name

    return tuple(dict.fromkeys(map(short_name, ep)))


def _dim(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not (name and equals and value.isascii() and value.isdigit()):
        raise UsageError(f"--dim {text!r} is not NAME=SIZE", hint="for example --dim batch=2")
    return name, int(value)


def with_inputs(
    options: Options, inputs: Path | None, given: list[str] | None, custom_operators: Path | None = None
) -> Options:
    """The options with what the verification is to run on, and with."""
    if inputs is not None and given:
        raise UsageError("--inputs gives all inputs, so it does not go with --input")
    if custom_operators is not None and not custom_operators.is_file():
        raise UsageError(f"--custom-op-library {str(custom_operators)!r}: there is no such file")
    recipes = dict(_recipe(text) for text in given or ())
    return dataclasses.replace(options, inputs=inputs, given=recipes, custom_operators=custom_operators)


def with_memory(options: Options, size: str | None) -> Options:
    """The options with the memory that the verification may take."""
    if size is None:
        return options
    from normfuse.parity.memory import parse_size

    return dataclasses.replace(options, max_memory=parse_size(size))


def with_lowerings(
    options: Options, tune: bool, plan: Path | None, threads: int | None, *, several: bool
) -> Options:
    """The options with what decides between the lowerings of a site."""
    if threads is not None and not tune:
        raise UsageError("--threads is for --tune, which measures")
    if plan is not None and several:
        raise UsageError("a plan is for one model, so --plan does not go with several")
    return dataclasses.replace(options, tune=tune, plan=plan, threads=1 if threads is None else threads)


def _recipe(text: str) -> tuple[str, str]:
    # A name may hold an equals sign, a recipe hardly ever does.
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise UsageError(f"--input {text!r} is not NAME=HOW", hint="for example --input x=random:0:1")
    return name, value
