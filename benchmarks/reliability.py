"""What normfuse promises of any file, in figures: start, size, memory, kills, damaged files; peers beside it.

    python benchmarks/reliability.py                         every figure (ten minutes; the disk needs 2 GB)
    python benchmarks/reliability.py start nodes weights     some of them
    python benchmarks/reliability.py nodes --peers PYTHON    with the tools that are installed in that Python

Prints Markdown; docs/reliability.md holds what one run printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import scale
import size

ROOT = Path(__file__).parents[1]
NORMFUSE = [sys.executable, "-c", "from normfuse.cli import main; main()"]
UNIT = 1_000_000 if sys.platform == "darwin" else 1_000  # of ru_maxrss in a megabyte
LIMIT = 300  # seconds after which a tool is stopped
# What each peer is asked to do: its own whole job, from file to file, in a process of its own.
PEERS = {
    "onnxruntime, offline": "import onnxruntime as o; s = o.SessionOptions(); s.log_severity_level = 4;"
    "s.optimized_model_filepath = OUT; o.InferenceSession(IN, s, providers=['CPUExecutionProvider'])",
    "onnxslim": "import onnxslim; onnxslim.slim(IN, OUT)",
    "onnxsim": "import onnx, onnxsim; m, ok = onnxsim.simplify(IN); onnx.save(m, OUT)",
    "onnxscript optimizer": "import onnx_ir as ir, onnxscript.optimizer as o; m = ir.load(IN);"
    "o.optimize(m); ir.save(m, OUT)",
    "onnxscript rewriter": "import onnx_ir as ir, onnxscript.rewriter as r; m = ir.load(IN);"
    "ir.save(r.rewrite(m), OUT)",
}


@dataclass(frozen=True)
class Run:
    """One process: its exit code (None: stopped), seconds on the clock and of the processor, and MB."""

    code: int | None
    wall: float
    processor: float
    megabytes: float

    def __str__(self) -> str:
        if self.code is None:
            return f"stopped after {LIMIT} s | | "
        failed = f" (exit {self.code})" if self.code else ""
        return f"{self.wall:.1f} s{failed} | {self.processor:.1f} s | {self.megabytes:,.0f} MB"


def run(line: list[str]) -> Run:
    """Run a process to its end, or to LIMIT."""
    start = time.perf_counter()
    child = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        wall = time.perf_counter() - start
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return Run(child.returncode, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / UNIT)
        if wall > LIMIT:
            child.kill()
            child.wait()
            return Run(None, wall, 0.0, 0.0)
        time.sleep(0.005)


def start(folder: Path, peers: str) -> None:
    """The time before anything happens."""
    print("| | wall | processor | memory |\n|---|---|---|---|")
    print(f"| `normfuse --help` | {run([*NORMFUSE, '--help'])} |")
    model = ROOT / "models" / "encoder.onnx"
    for what, options in (("verified", []), ("`--no-verify`", ["--no-verify"])):
        done = run([*NORMFUSE, str(model), "-o", str(folder / "o.onnx"), *options])
        print(f"| a small model ({model.name}), {what} | {done} |")


def nodes(folder: Path, peers: str) -> None:
    """The time for models of many nodes; peers do what they do on the same file."""
    print("| nodes | norms | tool | wall | processor | memory | norms fused |\n|---|---|---|---|---|---|---|")
    for count in (10_000, 50_000, 100_000):
        model, norms = scale.chain(count)
        path, out = folder / "chain.onnx", folder / "out.onnx"
        onnx.save(model, path)
        tools = {"normfuse --no-verify": [*NORMFUSE, str(path), "--no-verify", "--quiet", "-o", str(out)]}
        if peers:
            given = f"IN, OUT = {str(path)!r}, {str(out)!r}; "
            small = {name: [peers, "-c", given + code] for name, code in PEERS.items()}
            tools |= (
                small if count == 10_000 else {k: v for k, v in small.items() if k.startswith("onnxruntime")}
            )
        for tool, line in tools.items():
            out.unlink(missing_ok=True)
            print(f"| {count:,} | {norms:,} | {tool} | {run(line)} | {_fused(out)} |", flush=True)


def _fused(out: Path) -> str:
    if not out.exists():
        return ""
    return f"{sum(n.op_type == 'LayerNormalization' for n in onnx.load(out).graph.node):,}"


def weights(folder: Path, peers: str) -> None:
    """Large weights: time, memory, bytes written."""
    print("| | wall | processor | memory | written |\n|---|---|---|---|---|")
    path = size.many_weights(folder / "many", 13.0)
    out = path.with_name("out.onnx")
    done = run([*NORMFUSE, str(path), "-o", str(out), "--no-verify"])
    written = size.written(path.parent) / 1e6
    print(f"| 13 GB of weights, 13 norms fused, no weight changed | {done} | {written:,.1f} MB |", flush=True)
    path = size.one_weight(folder / "one", 1.0)
    done = run([*NORMFUSE, str(path), "-o", str(path.with_name("out.onnx")), "--no-verify"])
    written = size.written(path.parent) / 1e6
    print(f"| a BatchNormalization folded into a weight of 1 GB | {done} | {written:,.1f} MB |", flush=True)


def kills(folder: Path, peers: str) -> None:
    """Killed 200 times at random moments, each time into the same output."""
    path, out = size.one_weight(folder, 0.05), folder / "out" / "out.onnx"
    out.parent.mkdir()
    line = [*NORMFUSE, str(path), "-o", str(out), "--no-verify", "--quiet"]
    usual = min(run(line).wall for _ in range(3))
    moment, tally = random.Random(1), {"whole": 0, "absent": 0, "broken": 0}
    before, strays = path.read_bytes(), 0
    for _ in range(200):
        out.unlink(missing_ok=True)
        child = subprocess.Popen(line, stderr=subprocess.DEVNULL)
        time.sleep(moment.uniform(0.5, 1.1) * usual)
        child.send_signal(signal.SIGKILL)
        child.wait()
        strays += any(p.name.startswith(".normfuse") for p in out.parent.iterdir())
        tally["whole" if _loads(out) else "broken" if out.exists() else "absent"] += 1
    run(line)
    left = sum(p.name.startswith(".normfuse") for p in out.parent.iterdir())
    print(f"200 kills: output {', '.join(f'{v} times {k}' for k, v in tally.items())};", end=" ")
    print(f"a temporary file stayed {strays} times, {left} after the next run;", end=" ")
    print(f"input unchanged: {path.read_bytes() == before}")


def _loads(out: Path) -> bool:
    """Whether the model is there with all the data that it refers to."""
    from normfuse.errors import InputError
    from normfuse.model_io import read

    try:
        read(out)
    except InputError:
        return False
    return True


def damaged(folder: Path, peers: str) -> None:
    """A thousand damaged files."""
    sys.path.insert(0, str(ROOT / "tests"))
    import hostile

    import normfuse
    from normfuse.errors import InputError

    seeds = [m.SerializeToString() for m in (hostile.layer_norm(), hostile.conv_bn())] + [
        hostile.nested_if(2)
    ]
    tally, slowest = {"rewritten": 0, "refused with one message": 0, "crashed": 0}, 0.0
    for data in hostile.mutants(seeds, 1000, seed=2):
        began, what = time.perf_counter(), "rewritten"
        try:
            normfuse.optimize(data, options=normfuse.Options(verify=False))
        except InputError:
            what = "refused with one message"
        except Exception:  # counted, which is the point
            what = "crashed"
        tally[what] += 1
        slowest = max(slowest, time.perf_counter() - began)
    print(
        f"1,000 damaged files: {', '.join(f'{v} {k}' for k, v in tally.items())}; the slowest {slowest:.2f} s"
    )


SECTIONS: dict[str, tuple[str, Callable[[Path, str], None]]] = {
    "start": ("Start", start),
    "nodes": ("Many nodes", nodes),
    "weights": ("Large weights", weights),
    "kills": ("Killed", kills),
    "damaged": ("Damaged files", damaged),
}


def main() -> None:
    """Print the sections that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(SECTIONS))
    parser.add_argument(
        "--peers", default="", metavar="PYTHON", help="an interpreter that has the other tools"
    )
    arguments = parser.parse_args()
    print(f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    for name in arguments.sections or SECTIONS:
        title, section = SECTIONS[name]
        print(f"## {title}\n")
        with tempfile.TemporaryDirectory() as folder:
            section(Path(folder), arguments.peers)
        print(flush=True)


if __name__ == "__main__":
    main()
