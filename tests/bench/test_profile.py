"""The time of each operator, read from onnxruntime's profile."""

from __future__ import annotations

import json
from typing import Any

from normfuse.bench.benchmark import BETWEEN
from normfuse.bench.profile import operators

Event = dict[str, Any]


def run(start: int, length: int) -> Event:
    return {"cat": "Session", "name": "model_run", "ts": start, "dur": length, "args": {}}


def node(name: str, kind: str, start: int, length: int) -> Event:
    args = {"op_name": kind, "provider": "CPUExecutionProvider"}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": length, "args": args}


def found(events: list[Event], feeds: int = 1) -> dict[str, tuple[int, int]]:
    """Microseconds and nodes by operator."""
    read = operators(json.loads(json.dumps(events)), feeds)
    return {each.operator: (round(each.seconds * 1e6), each.nodes) for each in read}


FIRST = [run(0, 900), node("m", "MatMul", 0, 900)]


def test_nodes_of_one_type_are_added_up_and_the_first_run_is_not_counted() -> None:
    events = [*FIRST, run(1000, 100), node("a", "Add", 1000, 10), node("b", "Add", 1010, 20),
              node("m", "MatMul", 1040, 50)]  # fmt: skip
    assert found(events) == {"Add": (30, 2), "MatMul": (50, 1), BETWEEN: (20, 0)}


def test_the_slowest_operator_comes_first() -> None:
    events = [*FIRST, run(1000, 100), node("a", "Add", 1000, 10), node("m", "MatMul", 1010, 90)]
    assert list(found(events)) == ["MatMul", "Add", BETWEEN]


def test_the_time_is_the_median_over_the_runs() -> None:
    events = FIRST + [
        event
        for i, length in enumerate((10, 500, 12))
        for event in (run(1000 * (i + 1), length), node("m", "MatMul", 1000 * (i + 1), length))
    ]
    assert found(events)["MatMul"] == (12, 1)


def test_a_loop_takes_what_its_body_does_not() -> None:
    events = [*FIRST, run(1000, 100), node("l", "Loop", 1000, 100),
              node("a", "Add", 1010, 30), node("a", "Add", 1050, 30)]  # fmt: skip
    assert found(events) == {"Loop": (40, 1), "Add": (60, 2), BETWEEN: (0, 0)}


def test_events_that_overlap_by_a_rounded_microsecond_are_not_inside_each_other() -> None:
    events = [*FIRST, run(1000, 100), node("a", "Add", 1000, 31), node("m", "MatMul", 1030, 60)]
    assert found(events) == {"Add": (31, 1), "MatMul": (60, 1), BETWEEN: (9, 0)}


def test_a_body_inside_a_body_is_taken_off_once() -> None:
    events = [*FIRST, run(1000, 100), node("l", "Loop", 1000, 100), node("i", "If", 1010, 80),
              node("a", "Add", 1020, 50)]  # fmt: skip
    assert found(events) == {"Loop": (20, 1), "If": (30, 1), "Add": (50, 1), BETWEEN: (0, 0)}


def test_with_several_inputs_a_run_is_the_mean_over_them() -> None:
    events = [run(0, 900), run(1000, 900), run(2000, 10), node("m", "MatMul", 2000, 10),
              run(3000, 30), node("m", "MatMul", 3000, 30)]  # fmt: skip
    assert found(events, feeds=2)["MatMul"] == (20, 1)


def test_an_operator_that_runs_in_some_runs_only_counts_as_it_does_in_most() -> None:
    events = [*FIRST, run(1000, 10), node("a", "Add", 1000, 10), run(2000, 10), run(3000, 10)]
    assert found(events)["Add"] == (0, 0)
