"""Does the result compute what torch does? Independent of normfuse's own parity check.

Original and result run on onnxruntime without any of its optimizations, and both are held against the torch
module in float64 with the same (rounded) parameters. The result may not be further from it than twice the
original's own distance and a few units in the last place. bfloat16, which onnxruntime's CPU provider hardly
runs, is compared with every bfloat16 of both models widened to float32.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from .exporting import DTYPES, sample
from .table import Spelling, Way

SLACK = {"fp32": 64 * 2.0**-23, "fp16": 4 * 2.0**-10, "bf16": 2.0**-7}
CANNOT_RUN = (errors.Fail, errors.NotImplemented, errors.InvalidGraph)
Tensors = tuple[torch.Tensor, ...]


def compare(spelling: Spelling, way: Way, source: Path, result: Path) -> str:
    """How the result differs, or nothing where it does not (or where onnxruntime cannot run the original)."""
    try:
        originals = _results(spelling, way, source)
    except CANNOT_RUN:
        return ""
    try:
        results = _results(spelling, way, result)
    except CANNOT_RUN as error:
        return f"does not run: {str(error).splitlines()[0]}"
    truths = (_truth(spelling, way, inputs) for inputs in _inputs(spelling, way))
    each = zip(originals, results, truths, strict=True)
    return next((found for three in each if (found := _differs(*three, SLACK[way.dtype]))), "")


def _session(path: Path, way: Way) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    model = onnx.load(path)
    if way.dtype == "bf16":
        _widen(model)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _inputs(spelling: Spelling, way: Way) -> Iterator[Tensors]:
    """The example, and one off zero; of other sizes where sizes may vary."""
    each = sample(spelling)
    example = each.inputs()
    yield example
    other = [tensor * 3 + 0.5 for tensor in example]
    if way.dynamic:
        sizes = {"batch": 3, "tokens": 5}
        for index, axes in enumerate(each.dynamic):
            for axis, symbol in axes.items():
                count = sizes[symbol]
                repeated = torch.cat([other[index], -0.7 * other[index]], dim=axis)
                other[index] = repeated.narrow(axis, 0, count)
    yield tuple(other)


@functools.lru_cache(maxsize=2)
def _exact(spelling: Spelling, dtype: str) -> torch.nn.Module:
    return sample(spelling).build().to(DTYPES[dtype]).to(torch.float64)


def _truth(spelling: Spelling, way: Way, inputs: Tensors) -> np.ndarray:
    rounded = tuple(tensor.to(DTYPES[way.dtype]).to(torch.float64) for tensor in inputs)
    with torch.no_grad():
        result: np.ndarray = _exact(spelling, way.dtype)(*rounded).to(torch.float64).numpy()
    return result


def _differs(original: np.ndarray, result: np.ndarray, truth: np.ndarray, slack: float) -> str:
    if original.shape != result.shape:
        return f"shape {result.shape} instead of {original.shape}"
    if not np.array_equal(np.isfinite(original), np.isfinite(result)):
        return f"{np.sum(~np.isfinite(result))} values not finite, {np.sum(~np.isfinite(original))} before"
    original, result = original.astype(np.float64), result.astype(np.float64)
    size = float(np.nanmax(np.abs(truth)))
    was, now = (float(np.nanmax(np.abs(values - truth))) / size for values in (original, result))
    return f"error {now:.2g}, {was:.2g} before" if now > 2 * was + slack else ""


def _results(spelling: Spelling, way: Way, path: Path) -> list[np.ndarray]:
    session = _session(path, way)
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    names = [(value.name, kinds[value.type]) for value in session.get_inputs()]
    return [
        session.run(
            None, {name: t.numpy().astype(kind) for (name, kind), t in zip(names, inputs, strict=True)}
        )[0]
        for inputs in _inputs(spelling, way)
    ]


def _widen(model: onnx.ModelProto) -> None:
    """Make float32 of every bfloat16, in place."""
    graph = model.graph
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i == onnx.TensorProto.BFLOAT16:
                attribute.i = onnx.TensorProto.FLOAT


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == onnx.TensorProto.BFLOAT16:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
