"""Contenders take turns on a clock of the tests' own: no time is measured here."""

from __future__ import annotations

import gc
from collections.abc import Callable

from normfuse.bench.turns import LEAST_ROUNDS, MOST_ROUNDS, take_turns


class Machine:
    """A clock that only runs while a contender does; log: who ran, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.slowdown = 1.0

    def clock(self) -> float:
        return self.now

    def contender(self, name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.log.append(name)
            self.now += seconds * self.slowdown

        return run


def test_the_times_are_those_of_one_run() -> None:
    machine = Machine()
    slow, fast = take_turns(
        [machine.contender("a", 0.003), machine.contender("b", 0.001)], 1.0, clock=machine.clock
    )
    assert {round(t, 9) for t in slow} == {0.003}
    assert {round(t, 9) for t in fast} == {0.001}
    assert len(slow) == len(fast)


def test_nobody_always_goes_first() -> None:
    machine = Machine()
    take_turns([machine.contender(name, 1.0) for name in "abc"], 0.0, clock=machine.clock, least=6)
    turns = "".join(machine.log[9:])  # behind three runs each that find out how long one takes
    assert turns == "abc" + "bca" + "cab" + "cba" + "acb" + "bac"


def test_a_long_run_is_a_turn_of_its_own_and_is_not_warmed_up() -> None:
    machine = Machine()
    take_turns([machine.contender("a", 2.0)], 0.0, clock=machine.clock)
    assert len(machine.log) == 3 + LEAST_ROUNDS


def test_short_runs_share_a_turn_behind_one_that_warms_up() -> None:
    machine = Machine()
    take_turns([machine.contender("a", 0.001)], 0.0, clock=machine.clock, turn=0.0051, least=1)
    assert len(machine.log) == 3 + 1 + 5


def test_the_budget_ends_the_measurement() -> None:
    machine = Machine()
    times = take_turns([machine.contender(name, 0.1) for name in "ab"], 10.0, clock=machine.clock)
    assert 45 <= len(times[0]) <= 55


def test_a_few_rounds_are_run_whatever_the_budget_is() -> None:
    machine = Machine()
    times = take_turns([machine.contender("a", 60.0)], 1.0, clock=machine.clock)
    assert len(times[0]) == LEAST_ROUNDS


def test_a_run_that_takes_no_time_ends_too() -> None:
    machine = Machine()
    times = take_turns([machine.contender("a", 0.0)], 1.0, clock=machine.clock)
    assert len(times[0]) == MOST_ROUNDS


def test_a_slow_moment_inside_a_turn_is_not_its_time() -> None:
    machine = Machine()
    calls = iter(range(10_000))

    def run() -> None:
        machine.now += 0.5 if next(calls) == 20 else 0.001

    (times,) = take_turns([run], 0.0, clock=machine.clock)
    assert {round(t, 9) for t in times} == {0.001}


def test_garbage_is_collected_again_afterwards() -> None:
    machine = Machine()
    seen: list[bool] = []

    def run() -> None:
        seen.append(gc.isenabled())
        machine.now += 1

    take_turns([run], 0.0, clock=machine.clock)
    assert not any(seen)
    assert gc.isenabled()
