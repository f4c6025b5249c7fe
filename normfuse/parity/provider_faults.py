"""What a provider itself computes wrongly, told apart from what a rewrite does by asking the CPU.

    original on the provider is not the original on the CPU       the provider spoils the original
    the result differs there, and on the CPU it does not          the provider spoils the result

The first is told, and the result is then held against what the CPU makes of the original. The second makes
the result wrong where it is to be used, so its rewrites are taken back; but it is the provider that is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from normfuse.parity.baseline import Baseline
from normfuse.parity.compare import Distance
from normfuse.parity.deployed import difference
from normfuse.parity.floor import Floor
from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.providers import CPU, provider_name
from normfuse.parity.sessions import Runner, RuntimeRefusalError, open_model
from normfuse.parity.settings import Settings, on_cpu
from normfuse.parity.verdict import OutputFigures
from normfuse.parity.whole import compare_all, flat, run_all, verdict_of

Figures = tuple[OutputFigures, ...]


def told_apart(
    baseline: Baseline,
    after: Model,
    results: Sequence[Mapping[str, Any]],
    figures: Figures,
    settings: Settings,
) -> tuple[Figures, list[str]]:
    """The figures as they count, and what to say of the provider.

    results, figures: what the provider makes of the rewritten model, held against the original there.
    """
    name = provider_name(settings.provider)
    if name == CPU or baseline.refused:
        return figures, []
    try:
        runner = open_model(baseline.model, on_cpu(settings))
        trials = _on_cpu(runner, baseline.trials)
    except RuntimeRefusalError:
        return figures, []  # the CPU cannot be asked
    floor = Floor(baseline.model, runner, on_cpu(settings))
    wrong = _spoiled(baseline, trials, floor)
    failed = verdict_of(figures) == "failed"
    if wrong:
        lead = f"the original already gives {wrong} on {name} than on the CPU"
        note = f"{lead}: the provider's doing, not a rewrite's"
        if not failed:
            return figures, [note]
        return _against_cpu(compare_all(trials, results, floor, baseline.unstable), name), [note]
    if failed and _agrees_on_cpu(after, trials, floor, settings, baseline.unstable):
        return figures, [f"on the CPU the two agree: it is {name} that computes the result otherwise"]
    return figures, []


def _on_cpu(runner: Runner, trials: Sequence[Trial]) -> list[Trial]:
    """The trials with what the CPU makes of them; of long ones only the first."""
    used = trials[:1] if trials[0].heavy else trials
    return [replace(trial, baseline=flat(runner.run(trial.feed))) for trial in used]


def _spoiled(baseline: Baseline, trials: Sequence[Trial], floor: Floor) -> str:
    """Which output the provider gives otherwise, and by how much; "" where it gives none."""
    for here, there in zip(baseline.trials, trials, strict=False):
        for name, value in there.baseline.items():
            if name not in here.baseline:
                continue
            gap = difference(value, here.baseline[name], floor.of(there).get(name, Distance()))
            if gap and name not in baseline.unstable:
                return f"another {name!r} ({gap})"
    return ""


def _against_cpu(figures: Figures, name: str) -> Figures:
    """The provider spoils the original: what differs from the CPU's result as well proves nothing."""
    why = f"{name} computes neither the original nor the result as the CPU does"
    return tuple(
        replace(f, conclusive=False, detail=why) if f.conclusive and not f.agrees else f for f in figures
    )


def _agrees_on_cpu(
    after: Model, trials: Sequence[Trial], floor: Floor, settings: Settings, unstable: Sequence[str]
) -> bool:
    try:
        outcome = run_all(open_model(after, on_cpu(settings)), trials)
    except RuntimeRefusalError:
        return False
    return (
        not outcome.refused and verdict_of(compare_all(trials, outcome.results, floor, unstable)) != "failed"
    )
