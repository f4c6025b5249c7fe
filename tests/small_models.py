"""Small models from ONNX text, rewritten and compared: what the tests of the rooms have in common.

m = model("m = ReduceMean<axes=[-1]>(x) y = Sub(x, m)", x="float[2,6,32]")
result = rewritten(m)
assert_agree(m, result.model)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper, numpy_helper, parser

from normfuse.graph.facts import Facts
from normfuse.norms.find import Findings, find
from normfuse.pipeline.rewrite import rewrite
from normfuse.report.record import Site
from normfuse.targets import resolve

Array = np.ndarray[Any, Any]
OFF = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
ALL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
FUSED = frozenset(
    {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "InstanceNormalization"}
)
DYNAMIC_SIZE = 5


def model(
    body: str,
    constants: Mapping[str, Array] | None = None,
    *,
    outputs: str = "",
    opset: int = 17,
    ir_version: int = 8,
    overridable: Sequence[str] = (),
    domains: str = "",
    **inputs: str,
) -> onnx.ModelProto:
    """A model from the ONNX text of its nodes.

    inputs: name="float[2,6,32]". outputs: "float[2,6,32] y"; without it, y has the type and shape of x.
    constants become initializers; those named in `overridable` are graph inputs as well.
    """
    declared = ", ".join(f"{type_} {name}" for name, type_ in inputs.items())
    outputs = outputs or f"{inputs['x']} y"
    proto = parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["": {opset}{domains}]> g ({declared}) => ({outputs})'
        f" {{ {body} }}"
    )
    for name, value in (constants or {}).items():
        tensor = numpy_helper.from_array(np.asarray(value), name)
        proto.graph.initializer.append(tensor)
        if name in overridable or ir_version < 4:
            proto.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    onnx.checker.check_model(proto)
    return proto


def mentioned(body: str, constants: Mapping[str, Array]) -> dict[str, Array]:
    """The constants that the text of a model names."""
    words = set(re.findall(r"\w+", body))
    return {name: value for name, value in constants.items() if name in words}


def f32(*values: float) -> Array:
    """A float32 scalar, or a vector."""
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def vector(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Parameters that are neither zero nor one, of both signs."""
    values = np.random.default_rng(seed).uniform(0.4, 1.9, shape)
    return np.asarray(values * np.where(np.arange(values.size).reshape(shape) % 3 == 1, -1, 1)).astype(dtype)


@dataclass(frozen=True)
class Result:
    """A rewritten model and its sites."""

    model: onnx.ModelProto
    sites: tuple[Site, ...]

    @property
    def fused(self) -> list[Site]:
        """Sites that were fused."""
        return [s for s in self.sites if s.status == "fused"]

    @property
    def reasons(self) -> set[str | None]:
        """The reason codes of the sites that were left."""
        return {s.reason for s in self.sites if s.status == "left"}

    @property
    def operators(self) -> Counter[str]:
        """How often each operator occurs, bodies included, constants aside."""
        return operators(self.model)


def operators(proto: onnx.ModelProto) -> Counter[str]:
    """How often each operator occurs, bodies included, constants aside."""
    graph = ir.from_proto(proto).graph
    nodes = (node.op_type for node in ir.traversal.RecursiveGraphIterator(graph))
    return Counter(op for op in nodes if op != "Constant")


def rewritten(proto: onnx.ModelProto, target: str = "ort-cpu", skip: Sequence[str] = ()) -> Result:
    """Rewrite a model; `skip` names outputs that are left alone."""
    done = rewrite(
        ir.from_proto(proto), resolve(target), lambda kind, anchor, out: "skipped" if out in skip else None
    )
    return Result(ir.to_proto(done.model), tuple(done.sites))


def findings(proto: onnx.ModelProto) -> Findings:
    """What the search finds in the main graph."""
    loaded = ir.from_proto(proto)
    return find(Facts(loaded), loaded.graph)


def session(proto: onnx.ModelProto, level: Any = OFF, optimized: str = "") -> onnxruntime.InferenceSession:
    """An onnxruntime session on the CPU; `optimized` is where it writes the graph that it runs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if optimized:
        options.optimized_model_filepath = optimized
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def feeds(proto: onnx.ModelProto, sizes: Mapping[str, int] | None = None) -> Iterator[dict[str, Array]]:
    """Inputs that tell look-alikes apart: rows at random, far from zero, constant, zero, tiny and large."""
    constants = {t.name for t in proto.graph.initializer}
    wanted = [v for v in proto.graph.input if v.name not in constants]
    for kind in range(3):
        rng = np.random.default_rng(11 + kind)
        feed = {}
        for value in wanted:
            tensor = value.type.tensor_type
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            shape = [
                d.dim_value if d.HasField("dim_value") else (sizes or {}).get(d.dim_param, DYNAMIC_SIZE)
                for d in tensor.shape.dim
            ]
            feed[value.name] = _array(rng, shape, np.dtype(dtype), kind)
        yield feed


def _array(rng: np.random.Generator, shape: list[int], dtype: np.dtype[Any], kind: int) -> Array:
    if dtype == np.bool_:
        return np.full(shape, kind != 1)
    if dtype.kind in "iu":
        return rng.integers(1, 3, shape).astype(dtype)
    values = rng.normal(size=shape)
    if kind == 1:
        values = values * 2 + 3
    elif kind == 2 and values.ndim and values.size:
        rows = values.reshape(-1, shape[-1])
        scales = (0.0, 1e-3, 30.0, 1.0)
        for k in range(len(rows)):
            rows[k] = 0.25 if k % 5 == 4 else rows[k] * scales[k % 5 % 4]
    return np.asarray(values).astype(dtype)


def run(proto: onnx.ModelProto, feed: dict[str, Array], level: Any = OFF) -> list[Array]:
    """The outputs of a model."""
    outputs: list[Array] = session(proto, level).run(None, feed)
    return outputs


def interface(proto: onnx.ModelProto) -> list[str]:
    """Inputs (but for initializers, which IR 3 lists as well) and outputs, as they stand in the file."""
    constants = {t.name for t in proto.graph.initializer} if proto.ir_version < 4 else set()
    values = [v for v in proto.graph.input if v.name not in constants]
    return [str(value) for value in (*values, *proto.graph.output)]


def assert_agree(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    *,
    sizes: Mapping[str, int] | None = None,
    tolerance: float = 0.0,
) -> None:
    """Both compute the same, have the same interface, and the second does so as users load it, too.

    A model that was left as it was is not run at the level of users: onnxruntime gets some look-alikes wrong.
    """
    assert interface(before) == interface(after)
    levels = (OFF,) if operators(before) == operators(after) else (OFF, ALL)
    reference, results = session(before), [session(after, level) for level in levels]
    for feed in feeds(before, sizes):
        expected = reference.run(None, feed)
        for outputs in (result.run(None, feed) for result in results):
            for a, b in zip(expected, outputs, strict=True):
                assert_close(a, b, tolerance)


def assert_close(a: Array, b: Array, tolerance: float = 0.0) -> None:
    """Equal in shape, type and non-finite places, and within a few roundings of the type."""
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    tolerance = tolerance or {"float16": 6e-3, "bfloat16": 5e-2, "float64": 1e-9}.get(a.dtype.name, 2e-4)
    x, y = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(y, x, rtol=tolerance, atol=tolerance, equal_nan=True)
