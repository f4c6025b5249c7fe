"""Small models in files, with a weight in a data file and a LayerNorm to fuse; and what to ask of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import external_data_helper
from small_models import f32, model, vector

WIDTH = 64
LAYER_NORM = """
    {y}_m = ReduceMean<axes = [-1]>({x})
    {y}_d = Sub({x}, {y}_m)
    {y}_q = Mul({y}_d, {y}_d)
    {y}_v = ReduceMean<axes = [-1]>({y}_q)
    {y}_e = Add({y}_v, eps)
    {y}_s = Sqrt({y}_e)
    {y} = Div({y}_d, {y}_s)
"""
COMMAND = [sys.executable, "-c", "from normfuse.cli import main; main()"]


def layer_norm() -> onnx.ModelProto:
    """A product with a weight of 16 kB, and a LayerNorm behind it."""
    constants = {"w": vector(WIDTH, WIDTH), "eps": f32(1e-5)}
    return model(f"h = MatMul(x, w) {LAYER_NORM.format(x='h', y='y')}", constants, x=f"float[B, {WIDTH}]")


def without_norm() -> onnx.ModelProto:
    """The product alone: nothing to fuse."""
    return model("y = MatMul(x, w)", {"w": vector(WIDTH, WIDTH)}, x=f"float[B, {WIDTH}]")


def batch_norm(channels: int = 64) -> onnx.ModelProto:
    """A convolution, whose weight changes when the BatchNormalization behind it is folded, and another."""
    kernel = vector(channels, channels, 3, 3)
    constants = {"w": kernel, "v": kernel[::-1].copy()}
    constants |= {name: np.abs(vector(channels, seed=k)) for k, name in enumerate("sbmr")}
    body = "z = Conv<pads = [1, 1, 1, 1]>(x, v) h = Conv(z, w) y = BatchNormalization(h, s, b, m, r)"
    shape = f"{channels}, 8, 8"
    return model(body, constants, x=f"float[N, {shape}]", outputs=f"float[N, {channels}, 6, 6] y")


def save_with_data(proto: onnx.ModelProto, path: Path, data: str = "") -> Path:
    """Save with every tensor of 1 kB or more in one data file beside the model (`MODEL.data`)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    external_data_helper.convert_model_to_external_data(
        proto, location=data or f"{path.name}.data", size_threshold=1024
    )
    onnx.save(proto, path)
    return path


def names_in(folder: Path) -> list[str]:
    """The files of a folder, temporary ones included."""
    return sorted(path.name for path in folder.iterdir())


def locations(path: Path) -> set[str]:
    """The data files that a model refers to."""
    proto = onnx.load(path, load_external_data=False)
    return {e.value for t in proto.graph.initializer for e in t.external_data if e.key == "location"}


def outputs(path: Path) -> list[Any]:
    """What a model computes for one fixed input."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (x,) = session.get_inputs()
    shape = [n if isinstance(n, int) else 3 for n in x.shape]
    feed = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    result: list[Any] = session.run(None, {x.name: feed})
    return result


def assert_same(a: list[Any], b: list[Any]) -> None:
    """Equal up to rounding."""
    for first, second in zip(a, b, strict=True):
        np.testing.assert_allclose(first, second, rtol=2e-4, atol=2e-4)


def command(
    *arguments: str | Path, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a process of its own."""
    line = [*COMMAND, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, timeout=timeout, check=False, **options)
