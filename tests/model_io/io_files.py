"""Small models with their weights inside or in a data file, and what to check about a written one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

N = 1024  # elements of each weight, 4 KiB
TEXT = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3], producer_name: "maker", producer_version: "1.2",
 domain: "org.example", model_version: 7, doc_string: "a model", metadata_props: ["key" : "value", "a" : "b"]>
g (float[B, S, 1024] x, float[1024] unused) => (float[B, S, 1024] y, float[B, S, 1024] z)
  <float[B, S, 1024] a>
{
  a = Neg(x)
  y = Mul(a, a)
  z = Abs(a)
}
"""


def reference(
    name: str, location: str, offset: int | None = 0, length: int | None = 4 * N, dims: Sequence[int] = (N,)
) -> onnx.TensorProto:
    """A float tensor whose bytes lie in a data file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def graph_of(weights: Sequence[onnx.TensorProto], *nodes: onnx.NodeProto) -> onnx.ModelProto:
    """x + w0 + w1 …, or the given nodes."""
    chain = list(nodes)
    if not chain:
        names = ["x", *(f"s{i}" for i in range(len(weights) - 1)), "y"]
        chain = [helper.make_node("Add", [names[i], w.name], [names[i + 1]]) for i, w in enumerate(weights)]
    graph = helper.make_graph(
        chain,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", N])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", N])],
        weights,
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def with_data(folder: Path, locations: Sequence[str] = ("m.onnx.data", "m.onnx.data")) -> Path:
    """A model of one weight a location, in `folder`; weights in one file follow each other."""
    folder.mkdir(parents=True, exist_ok=True)
    weights, ends = [], dict.fromkeys(locations, 0)
    for i, location in enumerate(locations):
        weights.append(reference(f"w{i}", location, ends[location]))
        data = folder / location
        data.parent.mkdir(parents=True, exist_ok=True)
        with data.open("ab") as file:
            file.write(np.full(N, i + 1, np.float32).tobytes())
        ends[location] += 4 * N
    path = folder / "m.onnx"
    onnx.save(graph_of(weights), path)
    return path


def run(path: Path) -> np.ndarray:
    """The first output of the model for an input of zeros."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.zeros((2, N), np.float32)})[0]


def leftovers(folder: Path) -> list[str]:
    """Temporary files that a run left behind."""
    return sorted(path.name for path in folder.glob(".normfuse-*"))


@pytest.fixture
def text_model(tmp_path: Path) -> Path:
    """A model with symbols, metadata and two inputs, all of which must survive."""
    path = tmp_path / "text.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


@pytest.fixture
def save(tmp_path: Path) -> Callable[[onnx.ModelProto], Path]:
    """Saves a model as it is and gives its path."""

    def save_model(model: onnx.ModelProto) -> Path:
        path = tmp_path / "m.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return save_model
