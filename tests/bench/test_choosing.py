"""The default stays unless a candidate is faster beyond the spread; all times here are made up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from normfuse.bench.choosing import Choice, best, choose
from normfuse.bench.ratios import paired
from normfuse.bench.turns import Run

ROUNDS = 30
Source = Callable[[int, int], float]
"""(contender's number, round) -> seconds"""


def steady(*seconds: float) -> Source:
    return lambda who, _: seconds[who]


def noisy(*seconds: float, spread: float, seed: int = 0) -> Source:
    rng = random.Random(seed)
    return lambda who, _: seconds[who] * (1 + spread * rng.uniform(0, 1))


class Bench:
    """Times by candidate in the place of measured ones. A run is the number of its candidate."""

    def __init__(self, *measurements: Source, broken: Sequence[int] = (), wrong: Sequence[int] = ()) -> None:
        self.measurements = list(measurements)
        self.broken, self.wrong = broken, wrong
        self.measured: list[list[int]] = []

    def open(self, index: int) -> Run | str:
        return "does not load" if index in self.broken else lambda: index

    def measure(self, runs: Sequence[Run]) -> list[list[float]]:
        source = self.measurements[min(len(self.measured), len(self.measurements) - 1)]
        who = [int(run()) for run in runs]  # type: ignore[call-overload]
        self.measured.append(who)
        rounds = [[source(each, k) for each in who] for k in range(ROUNDS)]
        return [list(column) for column in zip(*rounds, strict=True)]

    def fault(self, index: int) -> str:
        return "off by 1.0e-02" if index in self.wrong else ""

    def choice(self, *names: str) -> Choice:
        return choose("y", names or ("default", "other"), self.open, self.measure, self.fault)


# -- the decision ---------------------------------------------------------------------------------------


def test_a_faster_candidate_is_taken() -> None:
    found = Bench(steady(3.0, 1.0)).choice()
    assert found.lowering == "other"
    assert not found.is_default
    assert found.candidates[1].ratio is not None
    assert found.candidates[1].ratio.median == pytest.approx(3.0)


def test_a_slower_candidate_is_not_and_its_ratio_is_kept() -> None:
    found = Bench(steady(1.0, 3.0)).choice()
    assert found.is_default
    assert found.candidates[1].ratio is not None
    assert found.candidates[1].ratio.median == pytest.approx(1 / 3)


def test_at_a_tie_the_default_stays() -> None:
    assert Bench(steady(1.0, 1.0)).choice().is_default


def test_two_percent_are_not_worth_another_lowering() -> None:
    assert Bench(steady(1.02, 1.0)).choice().is_default
    assert not Bench(steady(1.05, 1.0)).choice().is_default


@pytest.mark.parametrize("seed", range(10))
def test_in_noise_larger_than_the_gain_the_default_stays(seed: int) -> None:
    assert Bench(noisy(1.05, 1.0, spread=2.0, seed=seed)).choice().is_default


@pytest.mark.parametrize("seed", range(10))
def test_a_gain_larger_than_the_noise_is_found(seed: int) -> None:
    assert not Bench(noisy(3.0, 1.0, spread=0.5, seed=seed)).choice().is_default


def test_one_outlier_of_the_default_gains_nothing_for_the_other() -> None:
    assert Bench(lambda who, k: 500.0 if (who, k) == (0, 3) else 1.0).choice().is_default


def test_one_outlier_of_the_faster_does_not_cost_it_the_place() -> None:
    found = Bench(lambda who, k: 500.0 if (who, k) == (1, 3) else (3.0, 1.0)[who]).choice()
    assert found.lowering == "other"


def test_a_machine_that_slows_down_favours_nobody() -> None:
    assert Bench(lambda who, k: 1.0 + 0.2 * k).choice().is_default
    assert not Bench(lambda who, k: (1.5, 1.0)[who] * (1.0 + 0.2 * k)).choice().is_default


def test_a_control_that_differs_from_itself_raises_the_bar() -> None:
    first, again, other = [1.2] * ROUNDS, [1.0] * ROUNDS, [1.1] * ROUNDS
    assert best([first, other], paired(first, again)) == 0
    assert best([first, other], paired(first, first)) == 1


def test_of_several_the_fastest_is_taken() -> None:
    assert Bench(steady(3.0, 2.0, 1.0, 1.5)).choice("default", "b", "c", "d").lowering == "c"


def test_of_equals_the_one_that_comes_first_is_taken() -> None:
    assert Bench(steady(3.0, 1.01, 1.0)).choice("default", "b", "c").lowering == "b"


# -- what else it takes ---------------------------------------------------------------------------------


def test_the_default_runs_against_itself_too() -> None:
    bench = Bench(steady(1.0, 1.0))
    bench.choice()
    assert bench.measured == [[0, 0, 1]]


def test_a_winner_has_to_win_twice() -> None:
    bench = Bench(steady(3.0, 1.0), steady(1.0, 1.0))
    found = bench.choice()
    assert found.is_default
    assert found.candidates[1].note == "it did not win a second time"
    assert bench.measured == [[0, 0, 1], [0, 0, 1]]


def test_the_next_best_has_its_turn_when_the_best_does_not_win_again() -> None:
    first, second = steady(3.0, 1.0, 2.0), steady(3.0, 3.0, 2.0)
    assert Bench(first, second).choice("default", "b", "c").lowering == "c"


def test_the_fastest_that_fails_parity_is_passed_over() -> None:
    found = Bench(steady(3.0, 1.0, 2.0), wrong=[1]).choice("default", "b", "c")
    assert found.lowering == "c"
    assert found.candidates[1].note == "off by 1.0e-02"


def test_parity_is_asked_of_winners_only() -> None:
    bench = Bench(steady(1.0, 2.0), wrong=[1])
    assert bench.choice().candidates[1].note == ""


def test_a_candidate_that_does_not_load_is_noted_and_the_rest_is_measured() -> None:
    bench = Bench(steady(3.0, 1.0, 2.0), broken=[1])
    found = bench.choice("default", "b", "c")
    assert found.lowering == "c"
    assert (found.candidates[1].ratio, found.candidates[1].note) == (None, "does not load")
    assert bench.measured[0] == [0, 0, 2]


def test_nothing_is_measured_where_the_default_does_not_load_or_is_alone() -> None:
    for bench in (Bench(steady(3.0, 1.0), broken=[0]), Bench(steady(3.0, 1.0), broken=[1])):
        assert bench.choice().is_default
        assert bench.measured == []
    assert "does not load" in Bench(steady(1.0, 1.0), broken=[0]).choice().note
