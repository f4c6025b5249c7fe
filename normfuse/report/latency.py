"""A benchmark for people: one row a model, the noise of the machine between them, and where the time goes.

cpu, 1 thread, ORT_ENABLE_ALL, onnxruntime 1.32.0; 166 rounds, in turns
inputs   x [2, 7, 384]

model          latency                   times as fast
a.onnx         1.23 ms (1.21 to 1.26)    1
  itself again                           0.999 (0.996 to 1.003)   what differs here is noise
b.onnx         1.10 ms (1.09 to 1.12)    1.121 (1.116 to 1.127)   faster
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from normfuse.bench.benchmark import BETWEEN, Benchmark, Latency, OperatorTime
from normfuse.bench.ratios import Ratio
from normfuse.report.printing import print_indented, print_line
from normfuse.report.text import duration, place, printable

_STYLES = {"first": "", "faster": "green", "slower": "red", "same": "dim"}
_WORDS = {"first": "", "faster": "faster", "slower": "slower", "same": "no difference beyond the noise"}
_LEGEND = "  latency: median (quartiles); times as fast: median (95 % interval) of the paired ratios"
_PROFILED = "  a run is slower while it is profiled: the shares count"
# Operators that take less than this share in every model are left out.
_LEAST_SHARE = 0.002


def print_benchmark(found: Benchmark, out: Console) -> None:
    """The conditions, the latencies, and the operators where they were profiled."""
    where = f"{place(found.provider, found.threads)}, ORT_ENABLE_ALL, onnxruntime {found.runtime}"
    out.print(Text(f"{where}; {found.rounds} rounds, in turns", style="bold"))
    for feed in found.inputs:
        shapes = ", ".join(f"{printable(name)} {list(shape)}" for name, shape in feed.items())
        print_line(out, "inputs", "dim", shapes or "none")
    if found.provider_options:
        told = ", ".join(f"{name}={value}" for name, value in found.provider_options.items())
        print_line(out, "precision", "dim", f"float32 throughout ({told}), as for verifying")
    if found.chosen:
        sizes = ", ".join(f"{printable(name)}={found.sizes[name]}" for name in found.chosen)
        print_line(out, "sizes", "yellow", f"{sizes} chosen here; give those you serve with --dim NAME=SIZE")
    out.print()
    print_indented(out, _latencies(found), 2)
    out.print(Text(_LEGEND, style="dim"))
    if any(model.operators for model in found.models):
        out.print()
        print_indented(out, _operators(found.models), 2)
        out.print(Text(_PROFILED, style="dim"))


def _latencies(found: Benchmark) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for title in ("model", "latency", "times as fast", ""):
        table.add_column(title, overflow="fold")
    for model in found.models:
        latency = f"{duration(model.median)} ({duration(model.q1)} to {duration(model.q3)})"
        standing = Text(_WORDS[model.standing], style=_STYLES[model.standing])
        table.add_row(printable(model.model), latency, _ratio(model.ratio), standing)
        if model.ratio is None:
            table.add_row(Text("  itself again", style="dim"), "", _ratio(found.control),
                          Text("the noise of this machine", style="dim"))  # fmt: skip
    return table


def _ratio(ratio: Ratio | None) -> str:
    return "1" if ratio is None else f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _operators(models: Sequence[Latency]) -> Table:
    """One row an operator type, one column a model: its time, its share, and in how many nodes."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("operator, profiled")
    for model in models:
        table.add_column(printable(model.model), justify="right", overflow="fold")
    times = [{each.operator: each for each in model.operators} for model in models]
    for kind in _ordered(models, times):
        cells = [_cell(t.get(kind), model.profiled) for model, t in zip(models, times, strict=True)]
        table.add_row(printable(kind), *cells)
    table.add_row(Text("all", style="bold"), *(f"{duration(model.profiled)}{'':12}" for model in models))
    return table


def _ordered(models: Sequence[Latency], times: Sequence[Mapping[str, OperatorTime]]) -> list[str]:
    """The operators by the largest share that they have in any model; what is between them comes last."""
    shares: dict[str, float] = {}
    for model, found in zip(models, times, strict=True):
        for kind, each in found.items():
            shares[kind] = max(shares.get(kind, 0.0), each.seconds / (model.profiled or 1.0))
    kept = [kind for kind, share in shares.items() if share >= _LEAST_SHARE]
    return sorted(kept, key=lambda kind: (kind == BETWEEN, -shares[kind]))


def _cell(each: OperatorTime | None, whole: float) -> str:
    if each is None:
        return ""
    count = f"in {each.nodes}" if each.nodes else ""
    return f"{duration(each.seconds)}  {each.seconds / (whole or 1.0):4.0%} {count:<5}"
