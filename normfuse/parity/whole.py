"""The verdict on a whole model: every output on every trial, against the original's own noise floor.

    relative error  <=  8 · noise floor  +  dtype bound  (+ what the certificates of its rewrites allow)

The noise floor (floor.py) is how far the original itself moves by one ulp; the dtype bound, 32 unit roundoffs
of the output's type, is for the few roundings of a shallow model. Integers must be equal, except for as many
elements as flip under the nudge as well, and for near-ties of an ArgMax or TopK (ties.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from normfuse.parity.compare import Distance, distance, is_degenerate
from normfuse.parity.dtypes import is_float, roundoff
from normfuse.parity.floor import Floor
from normfuse.parity.inputs import Trial
from normfuse.parity.sessions import Runner, RuntimeRefusalError
from normfuse.parity.ties import is_near_tie
from normfuse.parity.verdict import OutputFigures

TIMES_NOISE = 8.0
ROUNDOFFS = 32.0
# Moves are drawn at random and may cancel where real errors do not.
TIMES_SITES = 2.0
EMPTY = "it is empty"


@dataclass(frozen=True, eq=False)
class Comparison:
    """One output on one trial."""

    distance: Distance
    noise: Distance
    bound: float
    trial: str
    vain: str = ""

    @property
    def conclusive(self) -> bool:
        """Whether it says anything; `vain` is why not."""
        return not self.vain

    @property
    def agrees(self) -> bool:
        """Whether the two models agree here."""
        return not self.distance.mismatch and self.distance.relative <= self.bound

    @property
    def excess(self) -> float:
        """How many times the bound was used up."""
        if self.distance.mismatch:
            return np.inf
        if self.distance.relative == 0:
            return 0.0
        return self.distance.relative / self.bound if self.bound else np.inf


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result's outputs for all trials, or why it did not run."""

    results: Sequence[Mapping[str, Any]]
    refused: str = ""


def run_all(runner: Runner, trials: Sequence[Trial]) -> Outcome:
    """Run a model on all trials."""
    results = []
    for trial in trials:
        try:
            results.append(flat(runner.run(trial.feed)))
        except RuntimeRefusalError as error:
            return Outcome(results, f"does not run on {trial.label}: {error}")
    return Outcome(results)


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sequences and maps among the outputs as single arrays with a name of their own."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            found.update(flat({f"{name}[{i}]": v for i, v in enumerate(value)}))
        elif isinstance(value, dict):
            found.update(flat({f"{name}[{k}]": v for k, v in value.items()}))
        elif value is not None:
            found[name] = np.asarray(value)
    return found


def compare_all(
    trials: Sequence[Trial], results: Sequence[Mapping[str, Any]], floor: Floor, unstable: Iterable[str] = ()
) -> tuple[OutputFigures, ...]:
    """Figures for each output, over all trials; `unstable` ones differ between two runs of the original."""
    figures = []
    skip = set(unstable)
    for name in trials[0].baseline:
        if name in skip:
            figures.append(_random(name, trials[0].baseline[name]))
            continue
        found = [_compare(name, trial, after, floor) for trial, after in zip(trials, results, strict=False)]
        figures.append(_figures(name, trials, found))
    return tuple(figures)


def _compare(name: str, trial: Trial, after: Mapping[str, Any], floor: Floor) -> Comparison:
    before = trial.baseline[name]
    if name not in after:
        missing = Distance(relative=np.inf, mismatch="the output is missing")
        return Comparison(missing, Distance(), 0.0, trial.label)
    gap = distance(before, after[name])
    if trial.heavy:  # what agrees without its noise floor is not worth the run that this takes
        found = _against(gap, before, Distance(), trial)
        if found.agrees:
            return found
    found = _against(gap, before, floor.of(trial).get(name, Distance()), trial)
    if not found.agrees:
        found = _against(gap, before, floor.of(trial, deep=True).get(name, Distance()), trial)
    if found.agrees or found.distance.mismatch:
        return found
    if not is_float(before):
        tie = is_near_tie(name, before, after[name], trial, floor)
        return replace(found, bound=found.distance.relative) if tie else found
    half = _against(gap, before, floor.of_half(trial).get(name, Distance()), trial)
    if half.agrees:
        return half
    granted = floor.of_sites(trial).get(name, Distance()).relative
    return replace(found, bound=found.bound + TIMES_SITES * granted) if np.isfinite(granted) else found


def _against(gap: Distance, before: Any, noise: Distance, trial: Trial) -> Comparison:
    relative = noise.relative if np.isfinite(noise.relative) else 0.0
    bound = TIMES_NOISE * relative + ROUNDOFFS * roundoff(before.dtype)
    return Comparison(gap, noise, bound, trial.label, _vain(gap, before, noise, bound))


def _vain(gap: Distance, before: Any, noise: Distance, bound: float) -> str:
    """Why a comparison proves nothing, or ""."""
    if before.size == 0 and not gap.mismatch:
        return EMPTY
    # Where the original itself turns finite to NaN, or changes its shape, within one ulp, nothing is proved.
    if gap.mismatch and noise.mismatch:
        return "the original itself changes by NaN, infinity or shape within one rounding of its inputs"
    if is_float(before) and before.size > 0 and not np.isfinite(before.astype(np.float64)).any():
        return "it is NaN or infinite everywhere"
    # A bound as large as the result itself passes everything but what is the same bit for bit anyway.
    if bound >= 1 and not gap.mismatch and 0 < gap.relative <= bound:
        return "rounding alone moves the original by as much as the result is large"
    return ""


def _figures(name: str, trials: Sequence[Trial], found: Sequence[Comparison]) -> OutputFigures:
    """The figures of the input that used most of its bound, so that they belong together."""
    judged = [c for c in found if c.conclusive]
    shown = max(judged or found, key=lambda c: c.excess)
    gap = shown.distance
    values = [trial.baseline[name] for trial in trials]
    # Empty results do agree, and yet prove nothing.
    agrees = all(c.agrees for c in judged) and (bool(judged) or all(c.vain == EMPTY for c in found))
    return OutputFigures(
        name=name,
        dtype=str(values[0].dtype),
        max_absolute=gap.absolute,
        max_relative=gap.relative,
        max_ulp=gap.ulp,
        cosine=gap.cosine,
        noise_floor=shown.noise.relative,
        bound=shown.bound,
        non_finite=sum(c.distance.non_finite for c in judged or found),
        agrees=agrees,
        detail=_detail(shown, values, bool(judged), agrees),
        conclusive=bool(judged),
    )


def _detail(shown: Comparison, values: Sequence[Any], judged: bool, agrees: bool) -> str:
    if not judged:
        return f"{shown.vain} on these inputs, which proves nothing"
    if not agrees:
        why = shown.distance.mismatch or f"off by {shown.distance.relative:.1e}, bound {shown.bound:.1e}"
        return f"{why} ({shown.trial})"
    if all(is_degenerate(value) for value in values):
        return "every element is the same on all inputs, which proves little"
    return ""


def _random(name: str, value: Any) -> OutputFigures:
    nothing = OutputFigures(name, str(value.dtype), 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0, False)
    return replace(nothing, detail="two runs of the original differ", conclusive=False)


def is_close(trials: Sequence[Trial], results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every output is as good as the same, so that nothing has to explain a difference."""
    for trial, after in zip(trials, results, strict=True):
        for name, before in trial.baseline.items():
            gap = distance(before, after[name]) if name in after else Distance(mismatch="missing")
            if gap.mismatch or gap.relative > ROUNDOFFS * roundoff(before.dtype):
                return False
    return True


def unstable_outputs(runner: Runner, trial: Trial) -> tuple[str, ...]:
    """Outputs that differ between two runs of the original on the same inputs, by more than rounding."""
    again = flat(runner.run(trial.feed))
    found = []
    for name, value in trial.baseline.items():
        gap = distance(value, again[name]) if name in again else Distance(mismatch="gone")
        if gap.mismatch or gap.relative > ROUNDOFFS * roundoff(value.dtype):
            found.append(name)
    return tuple(found)


def verdict_of(figures: Sequence[OutputFigures]) -> str:
    """equal, failed or inconclusive, over all outputs."""
    if any(f.conclusive and not f.agrees for f in figures):
        return "failed"
    silent = any(not f.conclusive and not f.agrees for f in figures)
    vouched = not figures or any(f.conclusive for f in figures)
    return "inconclusive" if silent or not vouched else "equal"
