"""What the sites of a model read in the original's own run, a bounded amount at a time.

Mostly the run that made the baseline has kept it (recorder.py). Where that would have been too much, or a
value cannot be handed out, the model is run again for some sites at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from normfuse.parity.adversarial import Variant
from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.recorder import MOST_RECORDINGS, Recorder, estimates, sizes_of
from normfuse.parity.sessions import Runner, RuntimeRefusalError, open_with_outputs
from normfuse.parity.settings import Array, Settings
from normfuse.parity.sites import Site


def recordings(
    recorder: Runner, model: Model, sites: Sequence[Site], trials: Sequence[Trial], settings: Settings
) -> Iterator[tuple[Site, list[Variant]]]:
    """Each site with the values that it reads on the first few trials."""
    for site in sites:
        if not _is_recorded(site):
            yield site, []
    flat = [site for site in sites if _is_recorded(site)]
    used = trials[:MOST_RECORDINGS]
    runs = _kept(recorder, names_read(model, flat), used)
    if runs is not None:
        yield from ((site, [(label, _feed(model, site, values)) for label, values in runs]) for site in flat)
        return
    session, groups = _groups(model, flat, used, settings)
    for group in groups:
        yield from _record(model, group, used, settings, session if len(groups) == 1 else None)


def _is_recorded(site: Site) -> bool:
    """Not what lies in a body, nor what reads nothing."""
    return not site.before.nested and bool(site.recorded)


def names_read(model: Model, sites: Sequence[Site]) -> list[str]:
    """What has to be asked of a run: not the model's inputs, which are known, nor constants."""
    wanted = dict.fromkeys(name for site in sites if not site.before.nested for name in site.recorded)
    return [n for n in wanted if n not in model.inputs and n not in model.main.initializers]


def _kept(
    recorder: Runner, wanted: Sequence[str], trials: Sequence[Trial]
) -> list[tuple[str, Mapping[str, Array]]] | None:
    """The values of all trials, by the trial's label, if they are known."""
    kept: list[tuple[str, Mapping[str, Array]]] = []
    for trial in trials:
        values = recorder.recorded(trial.feed) if isinstance(recorder, Recorder) and wanted else None
        if values is None and wanted:
            return None
        kept.append((trial.label, {**trial.feed, **(values or {})}))
    return kept


def _record(
    model: Model,
    group: Sequence[Site],
    trials: Sequence[Trial],
    settings: Settings,
    session: Runner | None = None,
) -> Iterator[tuple[Site, list[Variant]]]:
    names = names_read(model, group)
    try:
        session = session or open_with_outputs(model, settings, names)
        runs = [(t.label, {**t.feed, **session.run(t.feed, names)}) for t in trials]
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


def _groups(
    model: Model, sites: Sequence[Site], trials: Sequence[Trial], settings: Settings
) -> tuple[Runner | None, list[list[Site]]]:
    """Sites together as long as what they read fits into the memory allowed for recording.

    The session that is opened to learn the sizes serves to record where all sites fit.
    """
    try:
        session = open_with_outputs(model, settings, names_read(model, sites))
    except RuntimeRefusalError:
        return None, [list(sites)] if sites else []
    sizes = estimates(session, sizes_of(model, trials[0].feed))
    groups: list[list[Site]] = []
    total = settings.record_memory + 1
    for site in sites:
        size = sum(sizes.get(name, 0) for name in site.recorded) * len(trials)
        if total + size > settings.record_memory:
            groups.append([])
            total = 0
        groups[-1].append(site)
        total += size
    return session, groups
