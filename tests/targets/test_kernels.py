"""The kernel table against the onnxruntime that is installed: a session for each entry, or none."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph, NotImplemented
from small_models import ALL, OFF, session

from normfuse.targets.kernels import ALL_FLOATS, KERNELS, has_kernel

OPSETS = {
    "LayerNormalization": (11, 17, 22),
    "SimplifiedLayerNormalization": (11, 17, 23),
    "RMSNormalization": (23, 24),
    "InstanceNormalization": (17, 22),
    "BatchNormalization": (14, 15),
    "LRN": (13, 17),
}
OPERANDS = {"BatchNormalization": 5, "InstanceNormalization": 3, "LRN": 1}
ATTRIBUTES = {"LRN": {"size": 3}}
CPU = [(op, dtype) for op, runtime in KERNELS if runtime == "cpu" for dtype in sorted(ALL_FLOATS)]


def single(operator: str, dtype: ir.DataType, opset: int) -> onnx.ModelProto:
    """A model of one node."""
    vectors = [f"p{k}" for k in range(OPERANDS.get(operator, 2) - 1)]
    info = [helper.make_tensor_value_info("x", int(dtype), [2, 4, 4, 4])]
    info += [helper.make_tensor_value_info(p, int(dtype), [4]) for p in vectors]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *vectors], ["y"], **ATTRIBUTES.get(operator, {}))],
        "single",
        info,
        [helper.make_tensor_value_info("y", int(dtype), [2, 4, 4, 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize(("operator", "dtype"), CPU, ids=lambda v: getattr(v, "name", v))
def test_the_table_is_what_the_cpu_provider_has(operator, dtype):
    for opset in OPSETS[operator]:
        for level in (OFF, ALL):
            if has_kernel(operator, ("cpu",), dtype):
                session(single(operator, dtype, opset), level)
            else:
                with pytest.raises((NotImplemented, InvalidGraph)):
                    session(single(operator, dtype, opset), level)


def test_every_runtime_must_have_the_kernel():
    assert has_kernel("RMSNormalization", ("cuda",), ir.DataType.BFLOAT16)
    assert not has_kernel("RMSNormalization", ("cpu", "cuda"), ir.DataType.BFLOAT16)
    assert not has_kernel("NoSuchOperator", ("cpu",), ir.DataType.FLOAT)


@pytest.mark.parametrize("operator", [op for op, runtime in KERNELS if runtime == "standard"])
def test_the_standard_column_is_allowed_by_the_specification(operator):
    schema = onnx.defs.get_schema(operator)
    allowed = {t for c in schema.type_constraints for t in c.allowed_type_strs}
    names = {"FLOAT": "float", "FLOAT16": "float16", "BFLOAT16": "bfloat16", "DOUBLE": "double"}
    assert all(f"tensor({names[d.name]})" in allowed for d in KERNELS[operator, "standard"])
