"""How long a model of N nodes takes, as a user meets it: a whole process, start and imports included.

    python benchmarks/scale.py                 1,000, 10,000, 50,000 and 100,000 nodes
    python benchmarks/scale.py 2000 20000      other sizes

Prints the seconds of `normfuse MODEL --no-verify -o OUT`, and the seconds for each 1,000 nodes beyond the
first model: that column stays level where the time grows linearly.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

SIZES = (1_000, 10_000, 50_000, 100_000)
WIDTH = 64

# one residual block each, 9 nodes on average: LayerNorm or RMSNorm in a spelling and with weights of its
# own, a Relu, and the sum with what came before
BLOCKS = (
    """
    {y}_mean = ReduceMean<axes = [-1]>({x})
    {y}_d = Sub({x}, {y}_mean)
    {y}_square = Pow({y}_d, two)
    {y}_var = ReduceMean<axes = [-1]>({y}_square)
    {y}_shifted = Add({y}_var, eps)
    {y}_std = Sqrt({y}_shifted)
    {y}_unit = Div({y}_d, {y}_std)
    {y}_scaled = Mul({y}_unit, {y}_gamma)
    {y}_normed = Add({y}_scaled, {y}_beta)
    {y}_active = Relu({y}_normed)
    {y} = Add({x}, {y}_active)""",
    """
    {y}_square = Mul({x}, {x})
    {y}_power = ReduceMean<axes = [-1]>({y}_square)
    {y}_shifted = Add({y}_power, eps)
    {y}_root = Sqrt({y}_shifted)
    {y}_unit = Div({x}, {y}_root)
    {y}_normed = Mul({y}_unit, {y}_gamma)
    {y}_active = Relu({y}_normed)
    {y} = Add({x}, {y}_active)""",
    """
    {y}_mean = ReduceMean<axes = [-1]>({x})
    {y}_d = Sub({x}, {y}_mean)
    {y}_square = Mul({y}_d, {y}_d)
    {y}_var = ReduceMean<axes = [-1]>({y}_square)
    {y}_shifted = Add({y}_var, eps)
    {y}_inverse = Pow({y}_shifted, half)
    {y}_unit = Mul({y}_d, {y}_inverse)
    {y}_normed = Mul({y}_unit, {y}_gamma)
    {y}_active = Relu({y}_normed)
    {y} = Add({x}, {y}_active)""",
    """
    {y}_square = Pow({x}, two)
    {y}_power = ReduceMean<axes = [-1]>({y}_square)
    {y}_shifted = Add({y}_power, eps)
    {y}_inverse = Pow({y}_shifted, half)
    {y}_normed = Mul({x}, {y}_inverse)
    {y}_active = Relu({y}_normed)
    {y} = Add({x}, {y}_active)""",
)
FUSED = ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")


def chain(nodes: int) -> tuple[onnx.ModelProto, int]:
    """A residual chain of at least `nodes` nodes, and how many norms it holds."""
    lines: list[str] = []
    x, norms = "x", 0
    for block in cycle(BLOCKS):
        if len(lines) >= nodes:
            break
        y = f"block{norms}"
        lines += block.format(x=x, y=y).strip().splitlines()
        x, norms = y, norms + 1
    lines.append(f"y = Identity({x})")
    signature = f"(float[batch, sequence, {WIDTH}] x) => (float[batch, sequence, {WIDTH}] y)"
    body = "\n".join(lines)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 13]> chain {signature} {{\n{body}\n}}'
    )
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{index}"
    constants = {"eps": np.float32(1e-5), "two": np.float32(2), "half": np.float32(-0.5)}
    random = np.random.default_rng(0)
    named = dict.fromkeys(name for node in model.graph.node for name in node.input)
    weights = [name for name in named if name.endswith(("_gamma", "_beta"))]
    constants |= {name: random.normal(1, 0.3, WIDTH).astype(np.float32) for name in weights}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items())
    return model, norms


def fused_in(out: Path) -> int:
    """How many fused norms a model holds."""
    return sum(node.op_type in FUSED for node in onnx.load(out).graph.node)


def seconds(path: Path, out: Path) -> float:
    """How long the command takes; an error of the command is an error here."""
    normfuse = [sys.executable, "-c", "from normfuse.cli import main; main()"]
    start = time.perf_counter()
    subprocess.run([*normfuse, str(path), "--no-verify", "--quiet", "-o", str(out)], check=True)
    return time.perf_counter() - start


def main(sizes: tuple[int, ...]) -> None:
    """Print one line for each size."""
    print(f"{'nodes':>8} {'norms':>7} {'fused':>7} {'seconds':>8}  seconds per 1,000 nodes more")
    before: tuple[int, float] | None = None
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "chain.onnx", Path(folder) / "out.onnx"
        for size in sizes:
            model, norms = chain(size)
            onnx.save(model, path)
            took, count = seconds(path, out), len(model.graph.node)
            fused = fused_in(out)
            more = "" if before is None else f"{1000 * (took - before[1]) / (count - before[0]):.4f}"
            print(f"{count:8,} {norms:7,} {fused:7,} {took:8.2f}  {more}")
            before = (count, took)


if __name__ == "__main__":
    main(tuple(int(size) for size in sys.argv[1:]) or SIZES)
