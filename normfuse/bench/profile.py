"""Where the time of a model goes, operator type by operator type, from onnxruntime's own profile.

A profile is a list of events with a start and a duration in microseconds: `model_run` for each run, inside it
one event a node. A Loop's event encloses those of its body, so from each event what lies inside is taken off.
A profiled run is slower than another: of the figures, the shares count.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normfuse.bench.benchmark import BETWEEN, OperatorTime
from normfuse.bench.running import Named, opened, runner
from normfuse.parity.settings import Feed, Settings

LEAST_RUNS, MOST_RUNS = 4, 100
_KERNEL = "_kernel_time"
# Other events that overlap do so because starts and durations are rounded to a microsecond.
_WITH_BODIES = ("If", "Loop", "Scan", "SequenceMap")

_NOTHING = (0.0, 0)

Event = Mapping[str, Any]
Tally = dict[str, tuple[float, int]]


def profiles(
    models: Sequence[Named], feeds: Sequence[Feed], settings: Settings, threads: int, seconds: float
) -> list[tuple[OperatorTime, ...]]:
    """The operators of each model, slowest first; the models run in turns for about `seconds`."""
    with tempfile.TemporaryDirectory() as folder:
        sessions = [
            opened(model, settings, threads, str(Path(folder) / str(i))) for i, model in enumerate(models)
        ]
        runs = [runner(m, session, feeds, settings) for m, session in zip(models, sessions, strict=True)]
        started, count = time.perf_counter(), 0
        while count < LEAST_RUNS or (count < MOST_RUNS and time.perf_counter() - started < seconds):
            for run in runs:
                run()
            count += 1
        files = [Path(session.end_profile()) for session in sessions]
        return [operators(json.loads(file.read_text("utf-8")), len(feeds)) for file in files]


def operators(events: Sequence[Event], feeds: int = 1) -> tuple[OperatorTime, ...]:
    """The time of each operator type in one run, the median over the runs of a profile, slowest first.

    feeds: how many sets of inputs were fed in turn; a run is the mean over them. The first pass, which
    allocates, is not counted. What a run takes beside its nodes is listed as `BETWEEN`.
    """
    runs = [e for e in events if e.get("name") == "model_run"][feeds:]
    nodes = sorted((e for e in events if _is_node(e)), key=lambda e: (e["ts"], -e["dur"]))
    own = _own_times(nodes)
    tallies = [_tally(run, nodes, own) for run in runs]
    passes = [_sum(tallies[i : i + feeds]) for i in range(0, len(tallies) - feeds + 1, feeds)]
    found = [
        OperatorTime(
            kind,
            statistics.median(once.get(kind, _NOTHING)[0] for once in passes) / feeds / 1e6,
            round(statistics.median(once.get(kind, _NOTHING)[1] for once in passes) / feeds),
        )
        for kind in dict.fromkeys(kind for once in passes for kind in once)
    ]
    return tuple(sorted(found, key=lambda operator: -operator.seconds))


def _is_node(event: Event) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith(_KERNEL)


def _own_times(nodes: Sequence[Event]) -> list[float]:
    """Microseconds of each event without the events inside it; the events in the order of their start."""
    own = [float(node["dur"]) for node in nodes]
    around: list[int] = []
    for i, node in enumerate(nodes):
        while around and nodes[around[-1]]["ts"] + nodes[around[-1]]["dur"] <= node["ts"]:
            around.pop()
        if around:
            own[around[-1]] -= node["dur"]
        if node["args"]["op_name"] in _WITH_BODIES:
            around.append(i)
    return [max(0.0, value) for value in own]


def _tally(run: Event, nodes: Sequence[Event], own: Sequence[float]) -> Tally:
    """Microseconds and number of the nodes of one run, by operator type; and what was beside them."""
    begin, end = (bisect_left(nodes, at, key=_start) for at in (run["ts"], run["ts"] + run["dur"]))
    tally: Tally = {}
    for node, time_ in zip(nodes[begin:end], own[begin:end], strict=True):
        before, count = tally.get(node["args"]["op_name"], _NOTHING)
        tally[node["args"]["op_name"]] = (before + time_, count + 1)
    return {**tally, BETWEEN: (max(0.0, run["dur"] - sum(own[begin:end])), 0)}


def _start(event: Event) -> int:
    return int(event["ts"])


def _sum(tallies: Sequence[Tally]) -> Tally:
    total: Tally = {}
    for tally in tallies:
        for kind, (microseconds, count) in tally.items():
            before, seen = total.get(kind, _NOTHING)
            total[kind] = (before + microseconds, seen + count)
    return total
