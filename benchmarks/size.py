"""Large weights: how long, how much memory, how many bytes are copied, as a user meets it (whole process).

    python benchmarks/size.py            13 GB of weights beside a LayerNorm; a fold into a weight of 1 GB
    python benchmarks/size.py 2 0.1      other sizes, in GB

The weights lie in sparse data files, so the disk needs room for a fraction of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GB = 10**9
SIDE = 16_384  # of a square float32 weight of 1.07 GB
# On Linux the peak is read from VmHWM, which is the program's own: ru_maxrss also remembers the process
# that started it.
_MEASURE = (
    "import resource, sys; from normfuse.cli import run; code = run(sys.argv[1:]);"
    "used = resource.getrusage(resource.RUSAGE_SELF);"
    "status = open('/proc/self/status').read() if sys.platform == 'linux' else '';"
    "peak = int(status.split('VmHWM:')[1].split()[0]) if status else used.ru_maxrss;"
    "print(used.ru_utime + used.ru_stime, peak); sys.exit(code)"
)


@dataclass(frozen=True)
class Figures:
    """What one run of the command took: seconds on the clock and of the processor, peak memory in bytes."""

    wall: float
    processor: float
    memory: int


def measured(*arguments: str | Path) -> Figures:
    """Run the command in a process of its own; an error of the command is an error here."""
    start = time.perf_counter()
    line = [sys.executable, "-c", _MEASURE, *map(str, arguments), "--quiet"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"normfuse ended with {done.returncode}: {done.stderr}")
    processor, memory = done.stdout.split()
    unit = 1 if sys.platform == "darwin" else 1024
    return Figures(time.perf_counter() - start, float(processor), int(memory) * unit)


def many_weights(folder: Path, gigabytes: float) -> Path:
    """Products with weights of 1 GB each in one sparse file, and a LayerNorm before each."""
    side = min(SIDE, int((gigabytes * GB / 4) ** 0.5))
    count = max(1, round(gigabytes * GB / (4 * side * side)))
    nodes, weights, x = [], [], "x"
    for k in range(count):
        nodes += _layer_norm(x, f"n{k}")
        nodes.append(helper.make_node("MatMul", [f"n{k}", f"w{k}"], [f"h{k}"]))
        weights.append(_external(f"w{k}", [side, side], k))
        x = f"h{k}"
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    return _saved(folder, nodes, weights, ["B", side], ["B", side])


def one_weight(folder: Path, gigabytes: float) -> Path:
    """A convolution with one large weight in a data file, and the BatchNormalization that folds into it."""
    side = int((gigabytes * GB / 4) ** 0.5)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]),
    ]
    random = np.random.default_rng(0)
    weights = [_external("w0", [side, side, 1, 1], 0)]
    weights += [numpy_helper.from_array(random.uniform(1, 2, side).astype(np.float32), n) for n in "sbmv"]
    return _saved(folder, nodes, weights, ["N", side, 4, 4], ["N", side, 4, 4])


def _layer_norm(x: str, y: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("ReduceMean", [x], [f"{y}m"], axes=[-1]),
        helper.make_node("Sub", [x, f"{y}m"], [f"{y}d"]),
        helper.make_node("Mul", [f"{y}d", f"{y}d"], [f"{y}q"]),
        helper.make_node("ReduceMean", [f"{y}q"], [f"{y}v"], axes=[-1]),
        helper.make_node("Add", [f"{y}v", "eps"], [f"{y}e"]),
        helper.make_node("Sqrt", [f"{y}e"], [f"{y}s"]),
        helper.make_node("Div", [f"{y}d", f"{y}s"], [y]),
    ]


def _external(name: str, dims: list[int], index: int) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    length = 4 * int(np.prod(dims))
    for key, value in (("location", "m.onnx.data"), ("offset", index * length), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _saved(folder: Path, nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto],
           input_shape: list[str | int], output_shape: list[str | int]) -> Path:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, input_shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, output_shape)
    eps = numpy_helper.from_array(np.asarray(1e-5, np.float32), "eps")
    graph = helper.make_graph(nodes, "large", [x], [y], [eps, *weights])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), folder / "m.onnx")
    end = sum(4 * int(np.prod(t.dims)) for t in weights if t.data_location == TensorProto.EXTERNAL)
    with (folder / "m.onnx.data").open("wb") as data:
        data.truncate(end)
        for offset in range(0, end, max(end // 64 // 4096 * 4096, 4096)):
            data.seek(offset)
            data.write(
                np.random.default_rng(offset).normal(size=256).astype(np.float32).tobytes()[: end - offset]
            )
    return folder / "m.onnx"


def written(folder: Path) -> int:
    """Bytes on the disk of everything but the input."""
    return sum(p.stat().st_blocks * 512 for p in folder.iterdir() if not p.name.startswith("m.onnx"))


def report(name: str, figures: Figures, disk: int) -> None:
    """One line."""
    print(
        f"{name:58} {figures.wall:6.1f} s  {figures.processor:6.1f} s cpu  {figures.memory / 1e6:8,.0f} MB"
        f"  {disk / 1e6:10,.2f} MB written",
        flush=True,
    )


def main(many: float, one: float) -> None:
    """Print one line for each case."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SIZE_FOLDER")) as name:
        folder = Path(name)
        path = many_weights(folder / "many", many)
        out = path.with_name("out.onnx")
        report(
            f"{many:g} GB of weights, none changed, beside the input",
            measured(path, "-o", out, "--no-verify"),
            written(path.parent),
        )
        out.unlink()
        report("  the same, verified", measured(path, "-o", out), written(path.parent))
        path = one_weight(folder / "one", one)
        out = path.with_name("out.onnx")
        report(
            f"a BatchNormalization folded into a weight of {one:g} GB",
            measured(path, "-o", out, "--no-verify"),
            written(path.parent),
        )


if __name__ == "__main__":
    main(*([float(text) for text in sys.argv[1:3]] if len(sys.argv) > 2 else (13.0, 1.0)))
