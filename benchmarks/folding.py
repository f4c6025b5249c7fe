"""How much faster a network runs once its affines are folded: original against result, interleaved.

    python benchmarks/folding.py            a table, as docs/folding.md has it
    python benchmarks/folding.py U-Net      networks whose name holds a word

Both run in onnxruntime at ORT_ENABLE_ALL on one thread, in turns within one process, and so does the
original a second time: what that ratio strays from 1 is the noise of the machine. The networks are exported
by torch, which is needed for that alone.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "folding")]

import torch_networks as networks  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import normfuse  # noqa: E402

ROUNDS = 60
SECONDS = 0.004  # of one turn
EXPORTERS = ("torchscript", "dynamo")  # opsets 17 and 18
HEAD = """\
| network | export | BatchNorms, before and after | original / result | original / itself |
| --- | --- | --- | --- | --- |"""


class LinearNorms(nn.Module):
    """Linear layers on tokens; each norm sees their features on axis 1, behind a Transpose."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x).transpose(1, 2)).transpose(1, 2).relu()
        return x


class Standardized(nn.Module):
    """A scale and a shift per channel of the image, in front of a Conv that is padded."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.deviation = Tensor([0.48, 0.46, 0.41]), Tensor([0.23, 0.22, 0.23])
        self.body = nn.Sequential(networks.conv(3, 8, 3, 2), networks.conv(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, 3, 1, 1)
        return self.body((x - self.mean.view(shape)) / self.deviation.view(shape))


def perceptron() -> nn.Module:
    """Linear, BatchNorm1d and ReLU, four times."""
    layers = [(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*(module for layer in layers for module in layer), nn.Linear(256, 16))


Build = Callable[[], nn.Module]
MEASURED: dict[str, tuple[Build, tuple[int, ...]]] = {
    "MLP, BatchNorm1d": (perceptron, (32, 256)),
    "Linear and BatchNorm1d through Transpose": (lambda: LinearNorms(64, 4), (4, 256, 64)),
    "PointNet": (networks.PointNet, (4, 512, 3)),
    "U-Net, grouped ConvTranspose": (networks.UNet, (1, 3, 96, 96)),
    "ResNet": (networks.ResNet, (1, 3, 128, 128)),
    "DenseNet": (networks.DenseNet, (1, 3, 96, 96)),
    "MobileNet-V3": (networks.MobileNet, (1, 3, 128, 128)),
    "EfficientNet": (lambda: networks.MobileNet(nn.SiLU), (1, 3, 128, 128)),
    "pre-activation ResNet": (networks.PreActivation, (1, 3, 64, 64)),
    "LeViT": (networks.LeViT, (4, 64, 16)),
    "standardized image, padded Conv": (Standardized, (1, 3, 128, 128)),
}


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios of all rounds, and their quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """What one took against the other, round by round."""
    low, median, high = statistics.quantiles([a / b for a, b in zip(above, below, strict=True)], n=4)
    return Ratio(median, low, high)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """As users load a model, on one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def turns(models: Sequence[onnx.ModelProto], x: np.ndarray) -> Iterator[tuple[float, ...]]:
    """For each round, the seconds that one run of each model took; whose turn is first changes."""
    sessions = [session(model) for model in models]
    for each in sessions:
        each.run(None, {"x": x})
    repeats = max(1, round(SECONDS / min(_seconds(sessions[0], x, 1) for _ in range(5))))
    for turn in range(ROUNDS):
        order = [(turn + k) % len(sessions) for k in range(len(sessions))]
        taken = {k: _seconds(sessions[k], x, repeats) for k in order}
        yield tuple(taken[k] for k in range(len(sessions)))


def _seconds(each: onnxruntime.InferenceSession, x: np.ndarray, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        each.run(None, {"x": x})
    return (time.perf_counter() - start) / repeats


def norms(model: onnx.ModelProto) -> int:
    """How many BatchNormalizations a model has."""
    return sum(node.op_type == "BatchNormalization" for node in model.graph.node)


def measure(build: Build, shape: tuple[int, ...], exporter: str) -> tuple[str, Ratio, Ratio]:
    """The norms before and after; the gain; the same ratio of the original to itself."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        model = networks.export(networks.Network(build, shape), exporter)
    result = normfuse.optimize(model)
    assert isinstance(result.model, onnx.ModelProto)
    taken_back = [site.output for site in result.report.sites if site.status == "rolled-back"]
    if taken_back:
        raise SystemExit(f"taken back by its parity check: {taken_back}")
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    original, after, again = zip(*turns([model, result.model, model], x), strict=True)
    return f"{norms(model)}, {norms(result.model)}", ratio(original, after), ratio(original, again)


def main(words: Sequence[str]) -> None:
    """Print the table."""
    print(HEAD)
    for name, (build, shape) in MEASURED.items():
        for exporter in EXPORTERS if all(word.lower() in name.lower() for word in words) else ():
            counts, gain, noise = measure(build, shape, exporter)
            print(f"| {name} | {exporter} | {counts} | {gain} | {noise} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
