"""What a verification costs, in plain runs of the model, and how much memory where the model is not run.

    python benchmarks/parity_cost.py             an encoder and a ResNet-50 of 100 MB, and a model of 8 GB
    python benchmarks/parity_cost.py encoder     one of them: encoder, resnet, large

A plain run is to open the original at ORT_DISABLE_ALL and to run it once, on the largest of the made inputs;
"run" is that without the opening. Times are of the processor, all threads together, for they say the same on
a busy machine; on an idle one the clock says less. "limit" is five runs and two seconds. "opened" and "runs"
count sessions and runs of whole models, on any inputs. numpy has one thread here, since its threads count as
busy while they wait for each other. The weights are random; no torch, no download.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import onnx

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "models"), str(ROOT / "benchmarks")]

from families import batch_norm  # noqa: E402
from size import many_weights, measured  # noqa: E402
from sketch import Sketch  # noqa: E402
from spellings import layer_norm  # noqa: E402

import normfuse  # noqa: E402
from normfuse.parity.inputs import Maker  # noqa: E402
from normfuse.parity.model import Model  # noqa: E402
from normfuse.parity.sessions import Session  # noqa: E402
from normfuse.parity.settings import Settings  # noqa: E402
from normfuse.parity.symbols import several  # noqa: E402

WIDTH, HEADS, LAYERS, TOKENS = 768, 12, 3, 5000
BLOCKS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
SPELLINGS = ("pow_div", "mul_reciprocal", "two_subs_pow", "scale_and_shift")
HEAD = """\
| model | rewrites | plain run | run | verified in | plain runs | limit | opened | runs |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def encoder() -> onnx.ModelProto:
    """A post-LN encoder on token ids: three layers of width 768."""
    sketch = Sketch("encoder_100mb")
    sketch.normal("tokens", TOKENS, WIDTH)
    sketch.constant("split", [0, 0, HEADS, WIDTH // HEADS], np.int64)
    sketch.constant("join", [0, 0, WIDTH], np.int64)
    sketch.constant("root", float(np.sqrt(WIDTH / HEADS)))
    sketch.add("embedded = Gather(tokens, ids)")
    x = layer_norm(sketch, "pow_div", "embedded", "x0", WIDTH, eps=1e-12)
    for k in range(LAYERS):
        for side, order in (("q", "0, 2, 1, 3"), ("k", "0, 2, 3, 1"), ("v", "0, 2, 1, 3")):
            _linear(sketch, x, f"{side}{k}", WIDTH, WIDTH)
            sketch.add(f"{side}{k}s = Reshape({side}{k}, split)")
            sketch.add(f"{side}{k}t = Transpose<perm = [{order}]>({side}{k}s)")
        sketch.add(f"""
            dots{k} = MatMul(q{k}t, k{k}t)
            scaled{k} = Div(dots{k}, root)
            soft{k} = Softmax<axis = -1>(scaled{k})
            mixed{k} = MatMul(soft{k}, v{k}t)
            back{k} = Transpose<perm = [0, 2, 1, 3]>(mixed{k})
            joined{k} = Reshape(back{k}, join)""")
        _linear(sketch, f"joined{k}", f"attended{k}", WIDTH, WIDTH)
        sketch.add(f"sum{k} = Add(attended{k}, {x})")
        y = layer_norm(sketch, SPELLINGS[2 * k % 4], f"sum{k}", f"y{k}", WIDTH)
        _linear(sketch, y, f"inner{k}", WIDTH, 4 * WIDTH)
        sketch.add(f"active{k} = Relu(inner{k})")
        _linear(sketch, f"active{k}", f"outer{k}", 4 * WIDTH, WIDTH)
        sketch.add(f"more{k} = Add(outer{k}, {y})")
        x = layer_norm(sketch, SPELLINGS[(2 * k + 1) % 4], f"more{k}", f"x{k + 1}", WIDTH)
    return sketch.model("int64[batch, sequence] ids", f"float[batch, sequence, {WIDTH}] {x}")


def resnet() -> onnx.ModelProto:
    """ResNet-50 at 224 x 224: 53 convolutions, a BatchNormalization behind each."""
    sketch = Sketch("resnet_100mb")
    _conv(sketch, "image", "stem", 3, 64, 7, 2)
    sketch.add("pooled = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(stem)")
    x, width, count = "pooled", 64, 0
    for inner, depth, stride in BLOCKS:
        for k in range(depth):
            y, step = f"block{count}", stride if k == 0 else 1
            _conv(sketch, x, f"{y}a", width, inner, 1, 1)
            _conv(sketch, f"{y}a", f"{y}b", inner, inner, 3, step)
            _conv(sketch, f"{y}b", f"{y}c", inner, 4 * inner, 1, 1, active=False)
            if k == 0:
                _conv(sketch, x, f"{y}d", width, 4 * inner, 1, step, active=False)
            sketch.add(f"{y}sum = Add({y}c, {f'{y}d' if k == 0 else x})\n{y} = Relu({y}sum)")
            x, width, count = y, 4 * inner, count + 1
    sketch.add(f"mean = GlobalAveragePool({x})\nflat = Flatten(mean)")
    sketch.normal("head", 1000, width, spread=width**-0.5)
    sketch.add("logits = Gemm<transB = 1>(flat, head)")
    return sketch.model("float[batch, 3, 224, 224] image", "float[batch, 1000] logits")


def _linear(sketch: Sketch, x: str, y: str, inner: int, outer: int) -> None:
    sketch.normal(f"{y}w", inner, outer, spread=inner**-0.5)
    sketch.normal(f"{y}b", outer)
    sketch.add(f"{y}p = MatMul({x}, {y}w)\n{y} = Add({y}p, {y}b)")


def _conv(
    sketch: Sketch, x: str, y: str, inner: int, outer: int, kernel: int, stride: int, *, active: bool = True
) -> None:
    sketch.normal(f"{y}w", outer, inner, kernel, kernel, spread=(inner * kernel**2) ** -0.5)
    pads = ", ".join([str(kernel // 2)] * 4)
    sketch.add(f"{y}c = Conv<strides = [{stride}, {stride}], pads = [{pads}]>({x}, {y}w)")
    batch_norm(sketch, f"{y}c", f"{y}n" if active else y, outer)
    if active:
        sketch.add(f"{y} = Relu({y}n)")


def counted() -> Counter[str]:
    """Counts sessions of whole models, and their runs, from now on."""
    counts: Counter[str] = Counter()
    start, run = Session.__init__, Session.run

    def counting_start(self: Session, source: Any, *args: Any, **options: Any) -> None:
        start(self, source, *args, **options)
        self.counts = options.get("threads", 0) != 1  # type: ignore[attr-defined]
        counts["opened"] += self.counts  # type: ignore[attr-defined]

    def counting_run(self: Session, feed: Any, names: Any = None) -> Any:
        counts["runs"] += self.counts  # type: ignore[attr-defined]
        return run(self, feed, names)

    Session.__init__ = counting_start  # type: ignore[method-assign]
    Session.run = counting_run  # type: ignore[method-assign]
    return counts


def plain_run(path: Path) -> tuple[float, float]:
    """Seconds to open a model and run it once, and of the run alone."""
    model, settings = Model.load(path), Settings()
    maker = Maker.of(model, settings)
    feed = maker.feed(next(several(maker.shapes, {})), "normal")
    opening, running = [], []
    for _ in range(3):
        started = time.process_time()
        session = Session(path, settings)
        opened = time.process_time()
        session.run(feed)
        opening.append(opened - started)
        running.append(time.process_time() - opened)
    return min(opening) + min(running), min(running)


def report(name: str, build: Callable[[], onnx.ModelProto]) -> None:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(build(), path)
        size = path.stat().st_size
        plain, run = plain_run(path)
        out = path.with_name("out.onnx")
        started = time.process_time()
        normfuse.optimize(path, out, normfuse.Options(verify=False))
        without = time.process_time() - started
        counts, started = counted(), time.process_time()
        found = normfuse.optimize(path, out).report
        took = time.process_time() - started - without
    if found.parity is None or not found.parity.agrees:
        raise SystemExit(f"{name}: not verified")
    rewrites, times = found.count("fused", "folded"), f"{counts['opened']} | {counts['runs']}"
    print(
        f"| {name}, {size / 1e6:.0f} MB | {rewrites} | {plain:.2f} s | {run:.2f} s | {took:.1f} s"
        f" | {took / plain:.1f} | {5 * run + 2:.1f} s | {times} |",
        flush=True,
    )


def large(gigabytes: float) -> None:
    """The memory of a whole process, where each rewrite is certified alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = many_weights(Path(folder), gigabytes)
        found = measured(path, "-o", path.with_name("out.onnx"), "--max-memory", "2GB")
    print(f"{gigabytes:g} GB of weights, --max-memory 2GB: {found.memory / 1e6:,.0f} MB, {found.wall:.0f} s")


def main(names: list[str]) -> None:
    """Print what was asked for."""
    models = {"encoder": encoder, "resnet": resnet}
    chosen = [name for name in models if not names or name in names]
    if chosen:
        normfuse.optimize(ROOT / "models" / "encoder.onnx", options=normfuse.Options(dry_run=True))  # imports
        print(HEAD)
    for name in chosen:
        report(name, models[name])
    if not names or "large" in names:
        large(8)


if __name__ == "__main__":
    main(sys.argv[1:])
