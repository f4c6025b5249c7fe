"""The caffe2 exports inside the onnx package: IR 3, opset 9, all weights filled with one number.

They are given weights as networks have them, in initializers that IR 3 lists as inputs as well.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from folding_models import Array
from onnx import helper, numpy_helper
from small_models import run

import normfuse

pytestmark = pytest.mark.slow
FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"


def weighted(name: str) -> tuple[onnx.ModelProto, str]:
    """A model with random weights, cut before its Softmax, and the name of its input."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph = model.graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    filled = {n.output[0]: tuple(stored[n.input[0]]) for n in graph.node if n.op_type == "ConstantOfShape"}
    nodes = [n for n in graph.node if n.op_type not in ("ConstantOfShape", "Softmax")]
    read = {operand for node in nodes for operand in node.input}
    shapes = filled | {k: a.shape for k, a in stored.items() if a.dtype == np.float32}
    (data,) = [v for v in graph.input if v.name in read and v.name not in shapes and v.name not in stored]
    drawn = drawn_weights(nodes, {k: shape for k, shape in shapes.items() if k in read})
    drawn |= {k: a for k, a in stored.items() if k in read and k not in shapes}
    inputs = [
        data,
        *(
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for k, a in drawn.items()
        ),
    ]
    end = onnx.ValueInfoProto(name=nodes[-1].output[0], type=graph.output[0].type)
    initializers = [numpy_helper.from_array(array, k) for k, array in drawn.items()]
    cut = helper.make_graph(nodes, name, inputs, [end], initializers)
    return helper.make_model(cut, opset_imports=model.opset_import, ir_version=3), data.name


def drawn_weights(nodes: list[onnx.NodeProto], shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Weights that keep the activations of a deep network in range."""
    rng = np.random.default_rng(0)
    norms = [n for n in nodes if n.op_type == "BatchNormalization"]
    positive = {n.input[k] for n in norms for k in (1, 4)} | {k for k in shapes if k.endswith("_w_0")}
    drawn = {}
    for name, shape in shapes.items():
        if len(shape) > 1:
            values = rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            values = rng.uniform(0.5, 1.5, shape) if name in positive else rng.normal(size=shape) * 0.2
        drawn[name] = values.astype(np.float32)
    return drawn


@pytest.mark.parametrize(
    ("name", "norms", "stays"),
    [("densenet121", 121, 62), ("inception_v2", 69, 0), ("resnet50", 53, 0), ("shufflenet", 49, 0)],
)
def test_every_norm_behind_a_conv_is_gone(name: str, norms: int, stays: int) -> None:
    """230 of them in all; those that stay are read from concatenations that are read again, but each takes in
    the Mul and the Add behind it."""
    model, data = weighted(name)
    result = normfuse.optimize(model)
    done = result.model
    assert isinstance(done, onnx.ModelProto)
    assert sum(node.op_type == "BatchNormalization" for node in model.graph.node) == norms
    found = Counter(node.op_type for node in done.graph.node)
    assert found["BatchNormalization"] == stays
    assert found["Mul"] == found["Unsqueeze"] == 0
    sites = Counter((site.status, site.reason) for site in result.report.sites if site.kind == "BatchNorm")
    assert sites == Counter({("folded", None): norms - stays, ("left", "linear-output-reused"): stays})
    assert done.ir_version == 3
    assert [str(v) for v in (*done.graph.input, *done.graph.output)] == [
        str(v) for v in (*model.graph.input, *model.graph.output)
    ]
    feed = {data: np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)}
    (before,), (after,) = run(model, feed), run(done, feed)
    assert np.isfinite(before).all()
    assert np.ptp(before) > 1e-3
    assert np.abs(after - before).max() <= 1e-5 * np.abs(before).max()
