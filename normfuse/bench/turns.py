"""Contenders take turns.

    round 1   A  B  C          a turn: one run to warm up, then runs for about 10 ms; its time is their median
    round 2   C  A  B
    round 3   B  C  A          the order rotates, so that nobody always follows the same one

One after the other in blocks would compare two moments of the machine, not two contenders. Where one run is
longer than a turn, a turn is that one run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from normfuse.model_io.collection import no_collection

Run = Callable[[], object]
Clock = Callable[[], float]

TURN = 0.01
LEAST_ROUNDS = 7
MOST_ROUNDS = 1000
MOST_RUNS = 200


def take_turns(
    contenders: Sequence[Run],
    seconds: float,
    *,
    turn: float = TURN,
    least: int = LEAST_ROUNDS,
    of: Callable[[Sequence[float]], float] = statistics.median,
    clock: Clock = time.perf_counter,
) -> list[list[float]]:
    """The times of each contender, one for each round, in seconds for one run.

    seconds: the budget of the whole; at least `least` rounds are run in any case.
    turn: about how long one turn takes, in seconds. of: what the time of a turn is, of those of its runs.
    """
    with no_collection():  # it would be in one contender's time and not in the other's
        runs = [_runs_in(contender, turn, clock) for contender in contenders]
        times: list[list[float]] = [[] for _ in contenders]
        started = clock()
        for number in range(MOST_ROUNDS):
            if number >= least and clock() - started >= seconds:
                break
            for index in _order(len(contenders), number):
                times[index].append(of(_turn(contenders[index], runs[index], clock)))
    return times


def _order(count: int, number: int) -> Iterator[int]:
    """Every contender once, beginning with another each round, every other lap backwards."""
    forward = [(index + number) % count for index in range(count)]
    return iter(forward if (number // count) % 2 == 0 else reversed(forward))


def _runs_in(contender: Run, turn: float, clock: Clock) -> int:
    """How many timed runs one turn has; the first run of all, which allocates, is not counted."""
    contender()
    single = min(_seconds(contender, clock) for _ in range(2))
    return 1 if single * 2 > turn else min(MOST_RUNS, int(turn / max(single, 1e-9)))


def _turn(contender: Run, runs: int, clock: Clock) -> list[float]:
    if runs > 1:
        contender()  # brings its own weights back into the caches
    return [_seconds(contender, clock) for _ in range(runs)]


def _seconds(contender: Run, clock: Clock) -> float:
    started = clock()
    contender()
    return clock() - started
