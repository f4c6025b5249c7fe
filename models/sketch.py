"""A graph while it is written down: lines of ONNX's text format, and random, never trivial weights."""

from __future__ import annotations

import zlib

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper


class Sketch:
    """One model in the making.

    The name seeds the random numbers, so that a model is the same on every machine, whatever else is built.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.lines: list[str] = []
        self.weights: dict[str, np.ndarray] = {}

    def add(self, text: str) -> None:
        """Append nodes, one a line: `y = Add(x, b)`."""
        self.lines += [line.strip() for line in text.strip().splitlines()]

    def normal(self, name: str, *shape: int, mean: float = 0.0, spread: float = 0.3) -> str:
        """A float32 weight of normal numbers; returns its name."""
        drawn = self.random.normal(mean, spread, shape)
        return self.constant(name, drawn.astype(np.float32))

    def positive(self, name: str, *shape: int) -> str:
        """A float32 weight between 0.5 and 2: a variance, or a scale of one sign."""
        drawn = self.random.uniform(0.5, 2.0, shape)
        return self.constant(name, drawn.astype(np.float32))

    def constant(self, name: str, values: object, dtype: type = np.float32) -> str:
        """A weight with the given values; returns its name."""
        array = values if isinstance(values, np.ndarray) else np.array(values, dtype)
        self.weights[name] = array
        return name

    def model(self, inputs: str, outputs: str, opset: int = 13) -> onnx.ModelProto:
        """The finished, checked model; `inputs` and `outputs` as in ONNX's text format."""
        body = "\n".join(self.lines)
        head = f'<ir_version: 8, opset_import: ["": {opset}]> {self.name} ({inputs}) => ({outputs})'
        model = onnx.parser.parse_model(f"{head} {{\n{body}\n}}")
        model.producer_name = "normfuse models/build.py"
        for index, node in enumerate(model.graph.node):
            node.name = f"{node.op_type}_{index}"
        read = {name for node in model.graph.node for name in node.input}
        model.graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in self.weights.items() if name in read
        )
        onnx.checker.check_model(model, full_check=True)
        return model
