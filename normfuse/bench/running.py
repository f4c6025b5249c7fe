"""Models opened to be timed: at the level that users deploy with, on the same inputs.

On CPU a run is `session.run`, what a caller sees. Elsewhere inputs and outputs stay on the device, as in a
deployment that cares: then a run is the model, and not the bus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normfuse.bench.turns import Run
from normfuse.errors import CannotVerifyError, UsageError
from normfuse.parity.providers import provider_name
from normfuse.parity.runtime import first_line, refusals
from normfuse.parity.sessions import RuntimeRefusalError, Session, value_of
from normfuse.parity.settings import Feed, Settings

# Threads that spin after a run would run into the turn of the next one.
_NO_SPINNING = {"session.force_spinning_stop": "1"}


@dataclass(frozen=True)
class Named:
    """A model file, and what the user calls it."""

    name: str
    path: Path


def deployed(model: Path | bytes, settings: Settings, threads: int, profile: str | None = None) -> Session:
    """A session at ORT_ENABLE_ALL; raises RuntimeRefusalError where the runtime does not load the model."""
    entries = {} if threads == 1 else _NO_SPINNING
    return Session(model, settings, "deployed", threads=threads, profile=profile, entries=entries)


def opened(model: Named, settings: Settings, threads: int, profile: str | None = None) -> Session:
    """A session at ORT_ENABLE_ALL; raises CannotVerifyError where the runtime does not load the model."""
    try:
        return deployed(model.path, settings, threads, profile)
    except RuntimeRefusalError as error:
        raise CannotVerifyError(f"{model.name}: does not load in this onnxruntime: {error}") from error


def require_same_inputs(first: Named, session: Session, other: Named, others: Session) -> None:
    """Raise UsageError where the same inputs cannot be fed to two models."""
    wanted, found = _inputs(session), _inputs(others)
    for name in wanted.keys() ^ found.keys():
        here, there = (first, other) if name in wanted else (other, first)
        raise UsageError(
            f"{here.name} has an input {name!r} that {there.name} does not have,"
            " so they cannot run side by side"
        )
    for name, kind in wanted.items():
        if kind != found[name]:
            raise UsageError(
                f"input {name!r} is {kind} in {first.name} and {found[name]} in {other.name},"
                " so they cannot run side by side"
            )


def _inputs(session: Session) -> dict[str, str]:
    return {value.name: value.type for value in session.session.get_inputs()}


def runner(model: Named, session: Session, feeds: Sequence[Feed], settings: Settings) -> Run:
    """One pass over all feeds, which has been run once; raises CannotVerifyError where it does not run."""
    try:
        return prepared(session, feeds, settings)
    except RuntimeRefusalError as error:
        raise CannotVerifyError(
            f"{model.name}: does not run on the inputs of the first model: {error}"
        ) from error


def prepared(session: Session, feeds: Sequence[Feed], settings: Settings) -> Run:
    """One pass over all feeds, which has been run once; raises RuntimeRefusalError where it does not run."""
    device = provider_name(settings.provider).removesuffix("ExecutionProvider").lower()
    try:
        passes = [_on_cpu(session, f) if device == "cpu" else _bound(session, f, device) for f in feeds]

        def run() -> None:
            for once in passes:
                once()

        run()
    except refusals() as error:
        raise RuntimeRefusalError(first_line(error), type(error).__name__) from error
    return run


def _on_cpu(session: Session, feed: Feed) -> Run:
    types = [value.type for value in (*session.session.get_inputs(), *session.session.get_outputs())]
    if "tensor(bfloat16)" in types:
        return lambda: session.run(feed)
    run, values = session.session.run, dict(feed)
    return lambda: run(None, values)


def _bound(session: Session, feed: Feed, device: str) -> Run:
    """A run between values that lie on the device."""
    binding: Any = session.session.io_binding()
    for name, array in feed.items():
        binding.bind_ortvalue_input(name, value_of(array))  # copied to the device here, once
    for name in session.outputs:
        binding.bind_output(name, device if device == "cuda" else "cpu")
    run = session.session.run_with_iobinding
    return lambda: run(binding)
