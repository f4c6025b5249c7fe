"""The work grows linearly with the model: five times the nodes, about five times the calls and the time."""

from __future__ import annotations

import gc
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType

import onnx
import pytest

import normfuse

pytestmark = pytest.mark.slow

UNVERIFIED = normfuse.Options(verify=False)


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    """benchmarks/scale.py, which builds the models."""
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("scale")
    finally:
        sys.path.remove(folder)


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions a piece of work calls: a count that no other process disturbs."""
    count = 0

    def tick(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def seconds_of(work: Callable[[], object]) -> float:
    """The processor time of a piece of work, with the garbage of others out of the way."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def test_the_number_of_calls_grows_linearly(scale: ModuleType) -> None:
    small, _ = scale.chain(2_000)
    large, _ = scale.chain(10_000)
    normfuse.optimize(scale.chain(100)[0], options=UNVERIFIED)  # imports and caches are not the model's work

    ratio = calls_of(lambda: normfuse.optimize(large, options=UNVERIFIED)) / calls_of(
        lambda: normfuse.optimize(small, options=UNVERIFIED)
    )

    assert ratio < 5.5  # linear: 5; quadratic: 25


def test_the_time_grows_linearly_to_50_000_nodes(scale: ModuleType) -> None:
    small, _ = scale.chain(10_000)
    large, norms = scale.chain(50_000)
    results = []

    first = seconds_of(lambda: normfuse.optimize(small, options=UNVERIFIED))
    second = seconds_of(lambda: results.append(normfuse.optimize(large, options=UNVERIFIED)))

    model: onnx.ModelProto = results[0].model
    assert sum(node.op_type in scale.FUSED for node in model.graph.node) == norms
    assert second / first < 10  # linear: 5; quadratic: 25
