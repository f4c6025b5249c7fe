"""Latency of models side by side, in one process.

    contenders   A, A again in a session of its own (the control), B, …
    inputs       made from A's graph, or the user's; the same for all
    turns        see turns.py; a ratio for each round, see ratios.py

The control is what A is against itself: where its interval is wide, so is the noise of the machine, and no
smaller difference is called one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from normfuse.bench.benchmark import Benchmark, Latency, OperatorTime, Standing
from normfuse.bench.profile import profiles
from normfuse.bench.ratios import Ratio, is_faster, is_slower, paired, quartiles
from normfuse.bench.running import Named, opened, require_same_inputs, runner
from normfuse.bench.turns import Run, take_turns
from normfuse.parity.inputs import Trial, trials
from normfuse.parity.model import Model
from normfuse.parity.providers import EXACT, provider_name, require
from normfuse.parity.runtime import runtime
from normfuse.parity.settings import Feed, Settings

# Of the time for measuring, how much more the profile takes.
PROFILE_SHARE = 0.3

Progress = Callable[[str], None]


def measure(
    models: Sequence[Named],
    settings: Settings,
    *,
    threads: int = 1,
    seconds: float = 5.0,
    profile: bool = False,
    progress: Progress = lambda stage: None,
) -> Benchmark:
    """The models side by side on one provider; the first is what the others are compared with.

    threads: of one operator; 0 leaves it to the runtime. seconds: the budget of the measurement.
    Raises UsageError for models of different inputs, CannotVerifyError for one that does not load or run, and
    for a provider that is not there.
    """
    require([settings.provider])
    progress("loading")
    sets = _inputs(models[0], settings, threads)
    feeds = [dict(trial.feed) for trial in sets]
    runs = _runs(models, feeds, settings, threads)
    progress("measuring")
    times = take_turns(runs, seconds)
    del runs
    operators: list[tuple[OperatorTime, ...]] = [()] * len(models)
    if profile:
        progress("profiling")
        operators = profiles(models, feeds, settings, threads, seconds * PROFILE_SHARE)
    return Benchmark(
        provider=settings.provider,
        threads=threads,
        runtime=str(runtime().__version__),
        inputs=tuple({name: np.shape(value) for name, value in feed.items()} for feed in feeds),
        sizes=dict(sets[0].sizes),
        chosen=tuple(name for name in sets[0].sizes if name not in settings.dims),
        rounds=len(times[0]),
        models=_latencies(models, times, len(feeds), operators),
        control=paired(times[0], times[1]),
        provider_options=dict(EXACT.get(provider_name(settings.provider), {})),
    )


def _inputs(first: Named, settings: Settings, threads: int) -> list[Trial]:
    """All sets that the user gave, or one that is made; each one that the first model accepts."""
    found, _ = trials(Model.load(first.path), opened(first, settings, threads), settings)
    return found if settings.inputs else found[:1]


def _runs(models: Sequence[Named], feeds: Sequence[Feed], settings: Settings, threads: int) -> list[Run]:
    """The first, the first again, the others."""
    contenders = (models[0], models[0], *models[1:])
    sessions = [opened(model, settings, threads) for model in contenders]
    for model, session in zip(contenders, sessions, strict=True):
        require_same_inputs(models[0], sessions[0], model, session)
    return [runner(m, session, feeds, settings) for m, session in zip(contenders, sessions, strict=True)]


def _latencies(
    models: Sequence[Named],
    times: Sequence[Sequence[float]],
    feeds: int,
    operators: Sequence[tuple[OperatorTime, ...]],
) -> tuple[Latency, ...]:
    control = paired(times[0], times[1])
    own = (times[0], *times[2:])
    ratios: list[Ratio | None] = [None, *(paired(times[0], other) for other in times[2:])]
    found = []
    for model, each, ratio, where in zip(models, own, ratios, operators, strict=True):
        q1, q3 = quartiles(sorted(each))
        figures = (statistics.median(each) / feeds, q1 / feeds, q3 / feeds)
        profiled = sum(operator.seconds for operator in where)
        found.append(Latency(model.name, *figures, ratio, standing(ratio, control), where, profiled))
    return tuple(found)


def standing(ratio: Ratio | None, control: Ratio) -> Standing:
    """What a model is against the first, beyond the spread."""
    if ratio is None:
        return "first"
    if is_faster(ratio, control):
        return "faster"
    return "slower" if is_slower(ratio, control) else "same"
