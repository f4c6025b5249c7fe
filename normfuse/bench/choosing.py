"""Which lowering of a site to take: the default, unless another one is faster beyond the spread.

    contenders   the default, the default again (the control), the other candidates
    winner       faster than the default by 3 % at least, with its whole interval, and by more than the
                 default differs from itself; where several are, the fastest, and of equals the first
    then         it has to pass parity, and to win once more, in sessions of its own

Measuring twice is what keeps luck out: among many candidates one of equals will look faster sometime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from normfuse.bench.ratios import Ratio, is_faster, paired
from normfuse.bench.turns import Run

LEAST_GAIN = 0.03

Times = Sequence[Sequence[float]]
Measure = Callable[[Sequence[Run]], Times]


@dataclass(frozen=True)
class Measured:
    """One candidate: how many times as fast as the default, or why it was not measured or not taken."""

    lowering: str
    ratio: Ratio | None = None
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """What was found for one site, by the name of its output.

    lowering: the one to take. candidates: the default first. note: why nothing was measured, if so.
    """

    site: str
    lowering: str
    candidates: tuple[Measured, ...]
    note: str = ""

    @property
    def is_default(self) -> bool:
        """Whether the target's default stays."""
        return self.lowering == self.candidates[0].lowering


def unmeasured(site: str, names: Sequence[str], note: str) -> Choice:
    """The default, because nothing could be measured."""
    return Choice(site, names[0], tuple(map(Measured, names)), note)


def best(times: Times, control: Ratio) -> int:
    """Which contender to take; times: of the default first, then of the others in their order."""
    champion = 0
    for index in range(1, len(times)):
        if is_faster(paired(times[champion], times[index]), control, LEAST_GAIN):
            champion = index
    return champion


def choose(
    site: str,
    names: Sequence[str],
    open_: Callable[[int], Run | str],
    measure: Measure,
    fault: Callable[[int], str],
) -> Choice:
    """Measure the lowerings of one site and choose.

    names: of the lowerings, the default first. open_: a candidate by its index, ready to run, or why it does
    not. fault: why a candidate fails parity, or "".
    """
    default = open_(0)
    again = open_(0)
    if isinstance(default, str) or isinstance(again, str):
        why = default if isinstance(default, str) else again
        return unmeasured(site, names, f"the default could not be measured: {why}")
    found = {0: Measured(names[0])}
    runs: dict[int, Run] = {}
    for index in range(1, len(names)):
        candidate = open_(index)
        found[index] = Measured(names[index], note=candidate if isinstance(candidate, str) else "")
        if not isinstance(candidate, str):
            runs[index] = candidate
    if runs:
        first, second, *others = measure([default, again, *runs.values()])
        control = paired(first, second)
        times = {0: first, **dict(zip(runs, others, strict=True))}
        found.update({i: replace(found[i], ratio=paired(first, t)) for i, t in times.items() if i})
        winner = _winner(times, control, found, open_, measure, fault)
    else:
        winner = 0
    return Choice(site, names[winner], tuple(found[i] for i in range(len(names))))


def _winner(
    times: dict[int, Sequence[float]],
    control: Ratio,
    found: dict[int, Measured],
    open_: Callable[[int], Run | str],
    measure: Measure,
    fault: Callable[[int], str],
) -> int:
    """The fastest that holds and wins again; why others do not is noted in `found`."""
    left = dict(times)
    while len(left) > 1:
        winner = list(left)[best(list(left.values()), control)]
        if winner == 0:
            break
        problem = fault(winner) or _luck(winner, open_, measure)
        if not problem:
            return winner
        found[winner] = replace(found[winner], note=problem)
        del left[winner]
    return 0


def _luck(winner: int, open_: Callable[[int], Run | str], measure: Measure) -> str:
    """Why a winner does not win again, or ""."""
    runs = [open_(0), open_(0), open_(winner)]
    ready = [run for run in runs if not isinstance(run, str)]
    if len(ready) < len(runs):
        return "it does not load a second time"
    first, second, other = measure(ready)
    return "" if best([first, other], paired(first, second)) else "it did not win a second time"
