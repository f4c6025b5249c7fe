"""What normfuse promises of any file, in figures: start, size, memory, kills, damaged files; peers beside it.

    python benchmarks/reliability.py                         every figure (half an hour; the disk needs 2 GB)
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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import scale
import size
from other_tools import OTHERS, command_lines, outcomes

ROOT = Path(__file__).parents[1]
NORMFUSE = [sys.executable, "-c", "from normfuse.cli import main; main()"]
UNIT = 1_000_000 if sys.platform == "darwin" else 1_000  # of ru_maxrss in a megabyte
LIMIT = 150  # seconds after which a tool is stopped
ROOM = 12 * 10**9  # bytes of memory that a peer may ask for
# Modules are compiled once, as those of an installed package are.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
OURS, RUNTIME = _COMPARED = ("normfuse --no-verify", "onnxruntime, offline")
TURNS = 3
FEWER = 250  # damaged files that the peers get as well


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


def _confine(process: int) -> None:
    """Keep a process from taking all memory, on systems where another may be told so."""
    if sys.platform == "linux":
        import resource

        resource.prlimit(process, resource.RLIMIT_DATA, (ROOM, ROOM))


def _peak(process: int) -> float:
    """The peak memory of a process so far in MB, or 0 where that is not told."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    return int(status.split("VmHWM:")[1].split()[0]) / 1_000 if "VmHWM:" in status else 0.0


def run(line: list[str]) -> Run:
    """Run a process to its end, or to LIMIT, with no more memory than ROOM."""
    start = time.perf_counter()
    child = subprocess.Popen(line, env=_ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _confine(child.pid)
    own = 0.0
    while True:
        own = _peak(child.pid) or own
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        wall = time.perf_counter() - start
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            # ru_maxrss also remembers the process that started this one, which then counts as nothing
            most = usage.ru_maxrss / UNIT
            memory = most if most > _peak(os.getpid()) else own or most
            return Run(child.returncode, wall, usage.ru_utime + usage.ru_stime, memory)
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
    """The time for models of many nodes; peers do what they do on the same file.

    normfuse and onnxruntime take turns, and the quickest run of each counts.
    """
    print("| nodes | norms | tool | wall | processor | memory | norms fused |\n|---|---|---|---|---|---|---|")
    ratios: dict[int, float] = {}
    for count in (10_000, 50_000, 100_000):
        model, norms = scale.chain(count)
        path, out = folder / "chain.onnx", folder / "out.onnx"
        onnx.save(model, path)
        # onnxruntime is the one that is installed here
        lines = _tools(path, out, peers) | {RUNTIME: command_lines(sys.executable, path, out)[RUNTIME]}
        quickest: dict[str, Run] = {}
        fused: dict[str, str] = {}
        others = [tool for tool in lines if tool not in _COMPARED and count == 10_000]
        for tool in (*_COMPARED * TURNS, *others):
            out.unlink(missing_ok=True)
            done = run(lines[tool])
            quickest[tool] = min(done, quickest.get(tool, done), key=lambda run: run.wall)
            fused[tool] = _fused(out)
        for tool, done in quickest.items():
            print(f"| {count:,} | {norms:,} | {tool} | {done} | {fused[tool]} |", flush=True)
        ours, theirs = (quickest[tool].wall for tool in _COMPARED)
        ratios[count] = ours / theirs
    print(f"\nThe time of normfuse in that of onnxruntime, the quickest of {TURNS} turns of each:")
    print(", ".join(f"{ratio:.2f} at {count:,} nodes" for count, ratio in ratios.items()))


def _tools(path: Path, out: Path, peers: str) -> dict[str, list[str]]:
    """The command line of each tool, from file to file."""
    ours = {OURS: [*NORMFUSE, str(path), "--no-verify", "--quiet", "-o", str(out)]}
    return ours | command_lines(peers, path, out)


def _fused(out: Path) -> str:
    return f"{scale.fused_in(out):,}" if out.exists() else ""


def weights(folder: Path, peers: str) -> None:
    """Large weights: time, memory, bytes written."""
    print("| model | tool | wall | processor | memory | written |\n|---|---|---|---|---|---|")
    path = size.many_weights(folder / "many", 13.0)
    _weigh("13 GB of weights, 12 norms, no weight to change", path, "")
    path = size.many_weights(folder / "some", 2.0)
    _weigh("2 GB of weights, 2 norms, no weight to change", path, peers)
    path = size.one_weight(folder / "one", 1.0)
    _weigh("a BatchNormalization behind a weight of 1 GB", path, peers)


def _weigh(what: str, path: Path, peers: str) -> None:
    """One line for each tool that writes beside the input."""
    out = path.with_name("out.onnx")
    for tool, line in _tools(path, out, peers).items():
        done, written = run(line), size.written(path.parent) / 1e6
        print(f"| {what} | {tool} | {done} | {written if out.exists() else 0:,.1f} MB |", flush=True)
        for file in path.parent.iterdir():
            if not file.name.startswith("m.onnx"):
                file.unlink()


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
    """A thousand damaged files, and what the peers make of the first of them."""
    sys.path.insert(0, str(ROOT / "tests"))
    import hostile

    import normfuse
    from normfuse.errors import InputError

    seeds = [m.SerializeToString() for m in (hostile.layer_norm(), hostile.conv_bn())] + [
        hostile.nested_if(2)
    ]
    files = list(hostile.mutants(seeds, 1000, seed=2))
    results, slowest = [], 0.0
    for data in files:
        began = time.perf_counter()
        try:
            normfuse.optimize(data, options=normfuse.Options(verify=False))
            results.append("model")
        except InputError:
            results.append("error")
        except Exception:  # counted, which is the point
            results.append("crashed")
        slowest = max(slowest, time.perf_counter() - began)
    tally = Counter(results)
    print(f"1,000 damaged files: {tally['model']} rewritten, {tally['error']} refused with one message, "
          f"{tally['crashed']} crashed; the slowest {slowest:.2f} s\n")  # fmt: skip
    if peers:
        _damaged_peers(folder, peers, files[:FEWER], Counter(results[:FEWER]))


def _damaged_peers(folder: Path, peers: str, files: list[bytes], ours: Counter[str]) -> None:
    """What other tools make of the same files; an error is any exception, whatever it says."""
    paths = [folder / f"{k}.onnx" for k in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    print(f"| the first {len(files)} of them | a model | an error | the process died | hung |")
    print("|---|---|---|---|---|")
    print(f"| normfuse | {ours['model']} | {ours['error']} | {ours['crashed']} | 0 |")
    for tool in OTHERS:
        found = outcomes(peers, tool, paths, folder)
        counts = " | ".join(str(found[what]) for what in ("model", "error", "died", "hung"))
        print(f"| {tool} | {counts} |", flush=True)


def spellings(folder: Path, peers: str) -> None:
    """Ten thousand graphs of the grammar of random spellings, for each target."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "properties")]
    from tally import tally

    began = time.process_time()
    for target in ("ort-cpu", "ort", "onnx"):
        print(f"`--target {target}`: {tally(range(10_240), target)}\n", flush=True)
    print(f"({time.process_time() - began:.0f} s of the processor, everything included)")


SECTIONS: dict[str, tuple[str, Callable[[Path, str], None]]] = {
    "start": ("Start", start),
    "nodes": ("Many nodes", nodes),
    "weights": ("Large weights", weights),
    "kills": ("Killed", kills),
    "damaged": ("Damaged files", damaged),
    "spellings": ("Random spellings", spellings),
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
