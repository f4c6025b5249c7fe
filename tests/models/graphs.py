"""What a test may ask of a finished model: counts of operators, what is left of norms, what it computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

FUSED = {
    "LayerNorm": ("LayerNormalization",),
    "RMSNorm": ("RMSNormalization", "SimplifiedLayerNormalization"),
}


def operators(path: Path) -> Counter[str]:
    """How often each operator occurs."""
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def fused_norms(path: Path) -> dict[str, int]:
    """How many fused nodes of each kind a model holds."""
    count = operators(path)
    return {kind: sum(count[name] for name in names) for kind, names in FUSED.items()}


def residue(path: Path) -> list[str]:
    """Nodes that only a norm which is still spelled out has: a mean, a root, a reciprocal, a square."""
    model = onnx.load(path, load_external_data=False)
    numbers = constants(model)
    left = []
    for node in model.graph.node:
        square = node.op_type == "Pow" and np.all(numbers.get(node.input[1], 0) == 2)
        if square or node.op_type in ("ReduceMean", "Sqrt", "Reciprocal"):
            left.append(f"{node.op_type} {node.name}")
    return left


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Initializers, and the values of Constant nodes that hold a tensor."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def behind(model: onnx.ModelProto, wanted: str, *producers: str) -> list[str]:
    """Names of the nodes of type `wanted` whose first input comes from one of `producers`."""
    made_by = {name: node.op_type for node in model.graph.node for name in node.output}
    return [
        node.name
        for node in model.graph.node
        if node.op_type == wanted and made_by.get(node.input[0]) in producers
    ]


def run(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs at the level of optimization that onnxruntime has by default."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs: list[np.ndarray] = session.run(None, feeds)
    return outputs


def interface(path: Path) -> list[str]:
    """Inputs and outputs as they stand in the file, byte for byte."""
    graph = onnx.load(path, load_external_data=False).graph
    return [str(value) for value in (*graph.input, *graph.output)]
