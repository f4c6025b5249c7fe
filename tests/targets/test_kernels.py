"""The kernel table against the onnxruntime that is installed, and what is asked of another release."""

from __future__ import annotations

import subprocess
import sys

import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph, NotImplemented
from small_models import ALL, OFF, session

from normfuse.targets import kernels
from normfuse.targets.kernels import ALL_FLOATS, CONTRIB, DOMAINS, TABLE, has_kernel, since

OPSETS = {
    "LayerNormalization": (11, 17, 22),
    "SimplifiedLayerNormalization": (11, 17, 23),
    "RMSNormalization": (23, 24),
    "InstanceNormalization": (17, 22),
    "BatchNormalization": (14, 15),
    "LRN": (13, 17),
    "MatMul": (9, 13),
    "Sum": (13,),
    "SkipLayerNormalization": (17, 23),
    "SkipSimplifiedLayerNormalization": (17, 23),
}
OPERANDS = {"BatchNormalization": 5, "InstanceNormalization": 3, "LRN": 1}
ATTRIBUTES = {
    "LRN": {"size": 3},
    **{op: {"epsilon": 1e-5} for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")},
}
CPU = [(op, dtype) for op, runtime in TABLE if runtime == "cpu" for dtype in sorted(ALL_FLOATS)]
FLOAT, HALF, BFLOAT = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16


@pytest.fixture
def other_release(monkeypatch):
    """As if another release than that of the table were installed."""
    kernels.installed.cache_clear()
    monkeypatch.setattr(kernels, "release", lambda: "1.20.1")
    yield monkeypatch
    kernels.installed.cache_clear()


def single(operator: str, dtype: ir.DataType, opset: int) -> onnx.ModelProto:
    """A model of one node."""
    adds = operator.startswith("Skip") or operator in ("Sum", "MatMul")
    shape = [2, 4, 4] if operator.startswith("Skip") else [2, 4, 4, 4]
    operands = {"x": shape} | ({"z": shape} if adds else {})
    vectors = 0 if operator in ("Sum", "MatMul") else OPERANDS.get(operator, 2) - 1
    operands |= {f"p{k}": [4] for k in range(vectors)}
    node = helper.make_node(
        operator, [*operands], ["y"], domain=DOMAINS.get(operator, ""), **ATTRIBUTES.get(operator, {})
    )
    graph = helper.make_graph(
        [node],
        "single",
        [helper.make_tensor_value_info(name, int(dtype), shape) for name, shape in operands.items()],
        [helper.make_tensor_value_info("y", int(dtype), shape)],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(("operator", "dtype"), CPU, ids=lambda v: getattr(v, "name", v))
def test_the_table_is_what_the_cpu_provider_has(operator, dtype):
    for opset in OPSETS[operator]:
        for level in (OFF, ALL):
            if has_kernel(operator, ("cpu",), dtype, opset):
                session(single(operator, dtype, opset), level)
            else:
                with pytest.raises((NotImplemented, InvalidGraph)):
                    session(single(operator, dtype, opset), level)


def test_the_table_is_what_its_release_lists():
    listed = kernels.listed()
    for (operator, runtime), known in TABLE.items():
        if runtime == "cpu":
            for dtype in ALL_FLOATS:
                told = {k.since for k in listed[operator, runtime] if dtype in k.dtypes}
                assert (min(told) if told else None) == min(
                    (k.since for k in known if dtype in k.dtypes), default=None
                )


def test_every_runtime_must_have_the_kernel():
    assert has_kernel("RMSNormalization", ("cuda",), BFLOAT)
    assert not has_kernel("RMSNormalization", ("cpu", "cuda"), BFLOAT)
    assert not has_kernel("NoSuchOperator", ("cpu",), FLOAT)


def test_an_operator_exists_from_an_opset_on():
    assert not has_kernel("RMSNormalization", ("cpu",), FLOAT, 22)
    assert has_kernel("RMSNormalization", ("cpu",), FLOAT, 23)
    assert since("LayerNormalization", ("cpu",), FLOAT) == 1
    assert since("LayerNormalization", ("standard",), FLOAT) == 17
    assert since("LayerNormalization", ("standard",), ir.DataType.DOUBLE) is None


def test_the_opset_of_the_standard_does_not_matter_for_onnxruntimes_own_operators():
    assert has_kernel("SkipLayerNormalization", ("cuda",), FLOAT, 11)


def test_another_release_is_asked_what_it_has(other_release):
    other_release.setattr(
        kernels,
        "listed",
        lambda: {("RMSNormalization", "cpu"): (kernels.Kernel(frozenset({FLOAT}), 23, 23),)},
    )
    assert has_kernel("RMSNormalization", ("cpu",), FLOAT, 23)
    assert not has_kernel("RMSNormalization", ("cpu",), FLOAT, 24)
    assert not has_kernel("LayerNormalization", ("cpu",), FLOAT)


def test_what_another_release_does_not_tell_is_in_the_table(other_release):
    other_release.setattr(kernels, "listed", lambda: {("LRN", "cpu"): (kernels.Kernel(frozenset({FLOAT})),)})
    assert has_kernel("GroupNorm", ("cuda",), HALF)
    other_release.setattr(kernels, "listed", lambda: {})
    kernels.installed.cache_clear()
    assert has_kernel("LayerNormalization", ("cpu",), FLOAT)


def test_a_build_with_a_provider_in_a_library_of_its_own_is_not_asked(monkeypatch):
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    state = "onnxruntime.capi.onnxruntime_pybind11_state"
    monkeypatch.setattr(f"{state}.get_available_providers", lambda: both)
    monkeypatch.setattr(f"{state}.get_all_opkernel_def", lambda: pytest.fail("asked"))
    assert kernels.listed() == {}


def test_without_onnxruntime_the_table_stands(other_release):
    other_release.setattr(kernels, "release", lambda: None)
    other_release.setattr(kernels, "listed", lambda: pytest.fail("asked"))
    assert has_kernel("LayerNormalization", ("cpu",), FLOAT)


def test_the_kernels_of_the_tables_release_are_known_without_importing_it():
    code = (
        "import sys, onnx_ir as ir; from normfuse.targets.kernels import has_kernel\n"
        "assert has_kernel('LayerNormalization', ('cpu',), ir.DataType.FLOAT)\n"
        "assert 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("operator", [op for op, runtime in TABLE if runtime == "standard"])
def test_the_standard_column_is_allowed_by_the_specification(operator):
    names = {"FLOAT": "float", "FLOAT16": "float16", "BFLOAT16": "bfloat16", "DOUBLE": "double"}
    for kernel in TABLE[operator, "standard"]:
        schema = onnx.defs.get_schema(operator, min(kernel.until, 28))
        allowed = {t for c in schema.type_constraints for t in c.allowed_type_strs}
        assert schema.since_version >= kernel.since or kernel.since >= 7
        assert all(f"tensor({names[d.name]})" in allowed for d in kernel.dtypes)
