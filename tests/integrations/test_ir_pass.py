"""normfuse as an onnx-ir pass: it composes, keeps the model object, and says whether it changed anything."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx_ir.passes.common import RemoveUnusedNodesPass

import normfuse
from normfuse.errors import ParityError

RMS = """<ir_version: 8, opset_import: ["": 17]>
rms (float[2,32] x) => (float[2,32] y) <float eps = {1e-5}>
{ unused = Relu(x)
  s = Mul(x, x) m = ReduceMean<axes=[-1]>(s) v = Add(m, eps) r = Sqrt(v) y = Div(x, r) }"""


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_it_composes_with_other_passes() -> None:
    model = ir.from_onnx_text(RMS)
    fuse = normfuse.NormFusePass()
    result = ir.passes.Sequential(RemoveUnusedNodesPass(), fuse)(model)
    assert result.model is model
    assert result.modified
    assert operators(model) == ["SimplifiedLayerNormalization"]
    assert fuse.report is not None
    assert fuse.report.parity is not None
    assert fuse.report.parity.result == "equal"


def test_an_opset_that_was_raised_is_that_of_the_model() -> None:
    model = ir.from_onnx_text(RMS)
    normfuse.NormFusePass(normfuse.Options(target="onnx"))(model)
    assert model.opset_imports[""] >= 23
    assert operators(model) == ["RMSNormalization"]


def test_a_second_pass_changes_nothing() -> None:
    model = ir.from_onnx_text(RMS)
    normfuse.NormFusePass()(model)
    assert not normfuse.NormFusePass()(model).modified


def test_a_model_that_does_not_hold_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ir.from_onnx_text(RMS)
    before = operators(model)

    def differs(*_: object, **__: object) -> None:
        raise ParityError("it differs")

    monkeypatch.setattr("normfuse.integrations.ir_pass.api.optimize", differs)
    with pytest.raises(ParityError):
        normfuse.NormFusePass()(model)
    assert operators(model) == before
