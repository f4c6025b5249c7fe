"""normfuse.torch.export: what is written computes what the module computes, or nothing is written."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import onnx
import pytest

import normfuse
from normfuse.errors import CannotVerifyError, ParityError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 32))

    def forward(self, x: Any, scale: Any = None) -> Any:
        h = self.first(x)
        y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return y if scale is None else (y * scale, y)


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("options", [{"dynamo": True}, {"dynamo": False, "opset_version": 17}])
def test_a_module_is_exported_fused_and_verified(net: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "net.onnx"
    result = normfuse.torch.export(net, (torch.randn(4, 16),), path, **options)
    assert result.model == path
    assert result.report.count("fused") == 1
    assert operators(path) == ["Gemm", "SimplifiedLayerNormalization"]


def test_keyword_arguments_and_several_outputs(net: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    arguments = {"scale": torch.full((32,), 2.0)}
    result = normfuse.torch.export(net, (torch.randn(4, 16),), path, kwargs=arguments)
    assert result.report.count("fused") == 1
    assert len(onnx.load(path).graph.output) == 2


def test_an_export_that_is_wrong_is_not_written(
    net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.onnx.export

    def wrong(module: Any, *arguments: Any, **options: Any) -> Any:
        changed = copy.deepcopy(module)
        torch.nn.init.constant_(changed.weight, 1.001)
        return real(changed, *arguments, **options)

    monkeypatch.setattr(torch.onnx, "export", wrong)
    path = tmp_path / "net.onnx"
    with pytest.raises(ParityError, match="is not what the module computes"):
        normfuse.torch.export(net, (torch.randn(4, 16),), path)
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_the_export_lost_are_said(net: Any, tmp_path: Path) -> None:
    net.forward = lambda x, other: Net.forward(net, x)
    with pytest.raises(CannotVerifyError, match="1 inputs"):
        normfuse.torch.export(net, (torch.randn(4, 16), torch.randn(2)), tmp_path / "net.onnx", dynamo=False)


def test_a_program_is_given_back_as_one(net: Any) -> None:
    program = torch.onnx.export(net, (torch.randn(4, 16),), dynamo=True)
    result = normfuse.optimize(program)
    assert isinstance(result.model, torch.onnx.ONNXProgram)
    assert [node.op_type for node in result.model.model.graph] == ["Gemm", "SimplifiedLayerNormalization"]
    assert len(program.model.graph) > 2
