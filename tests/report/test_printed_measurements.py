"""What is printed of latencies and of tuning."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from normfuse.bench.benchmark import BETWEEN, Benchmark, Latency, OperatorTime
from normfuse.bench.choosing import Choice, Measured
from normfuse.bench.ratios import Ratio
from normfuse.bench.tuning import Tuning
from normfuse.report.latency import print_benchmark
from normfuse.report.text import duration, place
from normfuse.report.tuning import print_tuning

EVEN = Ratio(1.0, 0.99, 1.01, 0.98, 1.02)
FASTER = Ratio(1.25, 1.2, 1.3, 1.15, 1.35)
FIRST = Latency("a.onnx", 0.002, 0.0019, 0.0021, None, "first",
                (OperatorTime("MatMul", 0.0015, 6), OperatorTime(BETWEEN, 0.0005, 0)), 0.002)  # fmt: skip
SECOND = Latency("b.onnx", 0.0016, 0.0015, 0.0017, FASTER, "faster",
                 (OperatorTime("Sum", 0.001, 1), OperatorTime("Cast", 0.000001, 1)), 0.001001)  # fmt: skip
BENCHMARK = Benchmark("cpu", 1, "1.32.0", ({"x": (2, 7)},), {"S": 7}, ("S",), 40, (FIRST, SECOND), EVEN, {})

DEFAULT = Choice("y", "layer-norm", (Measured("layer-norm"), Measured("as-spelled", EVEN)))
OTHER = Choice("z", "as-spelled", (Measured("layer-norm"), Measured("as-spelled", FASTER)))
TUNING = Tuning("cpu", "1.32.0", 1, {"B": 8, "S": 7}, ("S",), (DEFAULT, OTHER), Ratio(1.05, 1, 1.1, 1, 1.1))


def printed(what: Benchmark | Tuning) -> list[str]:
    out = Console(file=io.StringIO(), width=200)
    print_tuning(what, out) if isinstance(what, Tuning) else print_benchmark(what, out)
    assert isinstance(out.file, io.StringIO)
    return [" ".join(line.split()) for line in out.file.getvalue().splitlines()]


def test_a_benchmark_states_its_conditions_and_its_noise() -> None:
    lines = printed(BENCHMARK)
    assert lines[0] == "cpu, 1 thread, ORT_ENABLE_ALL, onnxruntime 1.32.0; 40 rounds, in turns"
    assert "inputs x [2, 7]" in lines
    assert "sizes S=7 chosen here; give those you serve with --dim NAME=SIZE" in lines
    assert "a.onnx 2.00 ms (1.90 ms to 2.10 ms) 1" in lines
    assert "itself again 1.000 (0.990 to 1.010) the noise of this machine" in lines
    assert "b.onnx 1.60 ms (1.50 ms to 1.70 ms) 1.250 (1.200 to 1.300) faster" in lines


def test_operators_stand_side_by_side_and_what_is_between_them_comes_last() -> None:
    lines = printed(BENCHMARK)
    table = lines[lines.index("operator, profiled a.onnx b.onnx") + 1 :]
    assert table[0] == "Sum 1.00 ms 100% in 1"
    assert table[1] == "MatMul 1.50 ms 75% in 6"
    assert table[2].startswith(BETWEEN)
    assert table[3] == "all 2.00 ms 1.00 ms"
    assert not any("Cast" in line for line in table)  # a thousandth


def test_names_cannot_play_tricks_on_the_terminal() -> None:
    odd = replace(BENCHMARK, models=(replace(FIRST, model="a\x1b[2J.onnx"),))
    assert any("a\\x1b[2J.onnx" in line for line in printed(odd))


def test_tuning_says_what_was_changed_and_what_for() -> None:
    lines = printed(TUNING)
    assert lines[0] == (
        "tuned on cpu, 1 thread, B=8 S=7: 1 of 2 sites changed, the whole model 1.05 times as fast"
    )
    assert lines[1] == "1 × as-spelled in the place of layer-norm, 1.25 times as fast"
    assert lines[2] == "at sizes chosen here (S=7): give those you serve with --dim"


@pytest.mark.parametrize(
    ("tuning", "said"),
    [
        (replace(TUNING, choices=(DEFAULT,), whole=None), "1 site, and the defaults stay"),
        (replace(TUNING, choices=(), whole=None), "no site can be said in more than one way"),
        (replace(TUNING, choices=(DEFAULT,), note="it is slower"), "it is slower"),
        (replace(TUNING, choices=(replace(DEFAULT, note="in a body"),)), "1 site, such as 'y': in a body"),
    ],
)
def test_tuning_says_why_nothing_was_changed(tuning: Tuning, said: str) -> None:
    assert any(line.endswith(said) for line in printed(tuning))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 µs"),
        (4.56e-6, "4.56 µs"),
        (45.6e-6, "45.6 µs"),
        (0.00123, "1.23 ms"),
        (0.9996, "1.00 s"),
        (123.4, "123 s"),
    ],
)
def test_a_duration_has_three_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_place_names_provider_and_threads() -> None:
    assert place("cpu", 4) == "cpu, 4 threads"
    assert place("cpu", 0) == "cpu, as many threads as onnxruntime chooses"
    assert place("openvino", 1) == "openvino (1 thread for what it leaves to the CPU)"
