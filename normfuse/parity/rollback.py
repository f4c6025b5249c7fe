"""Which rewrite is to blame: the one whose certificate failed, else the first whose result differs.

The outputs of all sites exist in both models under the same names. In topological order, the first of them
that differs by more than its noise floor allows names the guilty rewrite, for everything before it agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from normfuse.parity.compare import distance
from normfuse.parity.dtypes import roundoff
from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.noise import nudge_all
from normfuse.parity.sessions import RuntimeRefusalError, open_with_outputs
from normfuse.parity.settings import Array, Boundary, Settings
from normfuse.parity.verdict import SiteVerdict
from normfuse.parity.whole import ROUNDOFFS, TIMES_NOISE

# How many boundary values are held at a time.
BATCH = 16


def guilty(
    original: Model,
    rewritten: Model,
    boundaries: Sequence[Boundary],
    sites: Mapping[str, SiteVerdict],
    trials: Sequence[Trial],
    settings: Settings,
    disagree: bool,
) -> tuple[str, ...]:
    """Outputs of the rewrites to take back; disagree: the whole model does."""
    failed = tuple(name for name, verdict in sites.items() if verdict.result == "failed")
    if failed or not disagree:
        return failed
    outputs = {b.output for b in boundaries if sites.get(b.output, SiteVerdict("equal")).result != "improved"}
    for trial in trials:
        first = first_difference(original, rewritten, ordered(original, outputs), trial, settings)
        if first is not None:
            return (first,)
    return ()


def ordered(model: Model, names: set[str]) -> list[str]:
    """Values of the main graph in the order in which they are computed."""
    return [name for name in model.main.position if name in names]


def first_difference(
    original: Model, rewritten: Model, names: Sequence[str], trial: Trial, settings: Settings
) -> str | None:
    """The first of the values, which both models have, that differs by more than noise explains."""
    for i in range(0, len(names), BATCH):
        batch = [name for name in names[i : i + BATCH] if name in rewritten.main.position]
        for name, before, moved, after in _values(original, rewritten, batch, trial, settings):
            noise = distance(before, moved).relative
            bound = TIMES_NOISE * (noise if np.isfinite(noise) else 0.0) + ROUNDOFFS * roundoff(before.dtype)
            gap = distance(before, after)
            if gap.mismatch or gap.relative > bound:
                return name
    return None


def _values(
    original: Model, rewritten: Model, names: list[str], trial: Trial, settings: Settings
) -> Iterator[tuple[str, Array, Array, Array]]:
    try:
        session = open_with_outputs(original, settings, names)
        before = session.run(trial.feed, names)
        moved = session.run(nudge_all(trial.feed, np.random.default_rng(settings.seed + 1)), names)
        after = open_with_outputs(rewritten, settings, names).run(trial.feed, names)
    except RuntimeRefusalError:
        return
    for name in names:
        yield name, np.asarray(before[name]), np.asarray(moved[name]), np.asarray(after[name])
