"""Records what the sites of a model read, from the original's own run, a bounded amount at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from normfuse.parity.adversarial import Variant
from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.sessions import Runner, RuntimeRefusalError, open_with_outputs
from normfuse.parity.settings import Array, Settings
from normfuse.parity.sites import Site
from normfuse.parity.symbols import parse

# The made inputs are three; of the user's own, the first few stand for the rest.
MOST_RECORDINGS = 3
UNKNOWN_SIZE = 64


def recordings(
    model: Model, sites: Sequence[Site], trials: Sequence[Trial], settings: Settings
) -> Iterator[tuple[Site, list[Variant]]]:
    """Each site with the values that it reads on the first few trials."""
    used = trials[:MOST_RECORDINGS]
    for site in sites:
        if site.before.nested:
            yield site, []
    flat = [site for site in sites if not site.before.nested]
    session, groups = _groups(model, flat, used, settings)
    for group in groups:
        yield from _record(model, group, used, settings, session if len(groups) == 1 else None)


def _record(
    model: Model,
    group: Sequence[Site],
    trials: Sequence[Trial],
    settings: Settings,
    session: Runner | None = None,
) -> Iterator[tuple[Site, list[Variant]]]:
    try:
        session = session or open_with_outputs(model, settings, _names(model, group))
        runs = [(t.label, {**t.feed, **session.run(t.feed, _names(model, group))}) for t in trials]
    except RuntimeRefusalError:
        # One value that the runtime cannot hand out must not hide the others.
        if len(group) == 1:
            yield group[0], []
            return
        half = len(group) // 2
        yield from _record(model, group[:half], trials, settings)
        yield from _record(model, group[half:], trials, settings)
        return
    for site in group:
        yield site, [(label, _feed(model, site, values)) for label, values in runs]


def _feed(model: Model, site: Site, values: Mapping[str, Array]) -> dict[str, Array]:
    return {
        name: np.asarray(values[name]) if name in values else model.array(model.main.initializers[name])
        for name in site.recorded
    }


def _names(model: Model, group: Sequence[Site]) -> list[str]:
    """What has to be asked of the run: not the model's inputs, which are known, nor constants."""
    wanted = dict.fromkeys(name for site in group for name in site.recorded)
    return [n for n in wanted if n not in model.inputs and n not in model.main.initializers]


def _groups(
    model: Model, sites: Sequence[Site], trials: Sequence[Trial], settings: Settings
) -> tuple[Runner | None, list[list[Site]]]:
    """Sites together as long as what they read fits into the memory allowed for recording.

    The session that is opened to learn the sizes serves to record where all sites fit.
    """
    try:
        session = open_with_outputs(model, settings, _names(model, sites))
    except RuntimeRefusalError:
        return None, [list(sites)] if sites else []
    sizes = _estimates(session.shapes(), trials)
    groups: list[list[Site]] = []
    total = settings.record_memory + 1
    for site in sites:
        size = sum(sizes.get(name, 0) for name in site.recorded)
        if total + size > settings.record_memory:
            groups.append([])
            total = 0
        groups[-1].append(site)
        total += size
    return session, groups


def _estimates(shapes: Mapping[str, Sequence[int | str | None]], trials: Sequence[Trial]) -> dict[str, int]:
    """Bytes of each value, from the shapes that the runtime infers; unknown dimensions are guessed."""
    known = {k: v for trial in trials for k, v in trial.sizes.items()}
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        dims = [d if isinstance(d, int) else _guess(d, known) for d in shape]
        found[name] = int(np.prod(dims, dtype=np.float64)) * 4 * max(1, len(trials))
    return found


def _guess(dim: str | None, known: Mapping[str, int]) -> int:
    size = parse(dim or "?")
    return size.value(known) if all(name in known for name in size.symbols) else UNKNOWN_SIZE
