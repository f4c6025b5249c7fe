"""From a torch module to the bytes of a model, as torch exports it."""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import redirect_stderr, redirect_stdout

import onnx
import torch
from torch import nn


def randomize(module: nn.Module) -> nn.Module:
    """Weights and statistics of trained size: what is drawn depends on the architecture alone."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_scale = name.endswith("weight") and parameter.dim() == 1
            spread = 0.3 if parameter.dim() == 1 else parameter[0].numel() ** -0.5
            parameter.copy_(torch.randn(parameter.shape) * spread + is_scale)
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, 0.0, 0.3)  # type: ignore[arg-type]
                nn.init.uniform_(part.running_var, 0.5, 1.5)  # type: ignore[arg-type]
    return module.eval()


def export(module: nn.Module, shape: tuple[int, ...], exporter: str, opset: int) -> bytes:
    """A model with the input `x` and the output `y`, of fixed sizes, as torch exports by default.

    exporter: "TorchScript", "dynamo" (torch's default), or "dynamo, not optimized" (`optimize=False`).
    """
    example = torch.zeros(shape)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        if exporter == "TorchScript":
            return _by_script(module, example, opset)
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            optimize=exporter == "dynamo",
            opset_version=opset,
            input_names=["x"],
            output_names=["y"],
            verbose=False,
        )
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    return model.SerializeToString()


def _by_script(module: nn.Module, example: torch.Tensor, opset: int) -> bytes:
    buffer = io.BytesIO()
    torch.onnx.export(
        module,
        (example,),
        buffer,  # type: ignore[arg-type]
        dynamo=False,
        opset_version=opset,
        input_names=["x"],
        output_names=["y"],
    )
    return buffer.getvalue()
