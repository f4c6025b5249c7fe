"""How fast a model was and is, and would be if norms cost nothing: measured while the report is made.

A short look, within a couple of seconds; `normfuse bench` is the careful one.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from normfuse.bench.ratios import paired
from normfuse.bench.running import Named, opened, runner
from normfuse.bench.turns import Run, take_turns
from normfuse.errors import NormfuseError
from normfuse.parity.inputs import trials
from normfuse.parity.model import Model, serialize
from normfuse.parity.sessions import RuntimeRefusalError, Session
from normfuse.parity.settings import Feed, Settings
from normfuse.pipeline.without import without_norms
from normfuse.report.record import Latency, Site
from normfuse.report.text import size

SECONDS = 2.0
"""The budget of the measurement itself; loading the models comes on top."""
MOST_BYTES = 1 << 30
MOST_SECONDS = 1.0
"""A run that takes longer is not repeated as often as a figure needs."""
THREADS = 1


def latency(original: Path, result: Path, sites: Sequence[Site], settings: Settings) -> Latency:
    """Time the original, the result, and the result without norms, in turns, at ORT_ENABLE_ALL.

    What cannot be measured is said in `why_not`; nothing is raised.
    """
    try:
        return _measured(original, result, sites, settings)
    except (NormfuseError, RuntimeRefusalError) as error:
        return Latency(settings.provider, why_not=str(error))


def _measured(original: Path, result: Path, sites: Sequence[Site], settings: Settings) -> Latency:
    model = Model.load(original)
    if model.weight_bytes > MOST_BYTES:
        return Latency(settings.provider, why_not=f"the model has {size(model.weight_bytes)} of weights")
    first, second = Named("the original", original), Named("the result", result)
    before, again, after = (opened(named, settings, THREADS) for named in (first, first, second))
    trial = trials(model, before, settings)[0][0]
    if trial.seconds > MOST_SECONDS:
        return Latency(settings.provider, why_not=f"one run takes {trial.seconds:.1f} s")
    feed = dict(trial.feed)
    runs = [runner(named, session, [feed], settings)
            for named, session in ((first, before), (first, again), (second, after))]  # fmt: skip
    bare = _bare(result, sites, settings, feed)
    times = take_turns([*runs, *bare], SECONDS)
    ratio = paired(times[0], times[2])
    medians = [statistics.median(each) for each in times]
    return Latency(
        provider=settings.provider,
        threads=THREADS,
        inputs=_shapes(feed),
        rounds=len(times[0]),
        before=medians[0],
        after=medians[2],
        without_norms=medians[3] if bare else None,
        faster=ratio.median,
        low=ratio.low,
        high=ratio.high,
        noise=paired(times[0], times[1]).excess,
    )


def _bare(result: Path, sites: Sequence[Site], settings: Settings, feed: Feed) -> list[Run]:
    """A run of the result without norms; none where it does not load or run."""
    model = Model.load(result)
    try:
        proto = serialize(without_norms(model, sites))
        session = Session(proto, settings, "deployed", folder=result.parent, threads=THREADS)
        return [runner(Named("the result without norms", result), session, [feed], settings)]
    except (NormfuseError, RuntimeRefusalError):
        return []


def _shapes(feed: Feed) -> str:
    return ", ".join(f"{name} {list(np.shape(value))}" for name, value in feed.items())
