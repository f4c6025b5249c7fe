"""The forms in which a model is given and given back: path, bytes, ModelProto, onnx_ir.Model, torch export.

An export is what `torch.onnx.export(…, dynamo=True)` returns; torch itself is not imported for that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import onnx
import onnx_ir as ir

from normfuse import model_io
from normfuse.errors import UsageError
from normfuse.model_io.serialize import to_proto

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

    Model = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model | ONNXProgram
    Given = Path | bytes | onnx.ModelProto | ir.Model | ONNXProgram | None
else:
    Model = Given = Any


def source_of(model: Model) -> model_io.Source:
    """Read a model of any form.

    Raises InputError for what is no valid model, UsageError for what is of no known form.
    """
    if isinstance(model, bytes):
        return model_io.from_bytes(model)
    if isinstance(model, onnx.ModelProto):
        return model_io.from_proto(model)
    if isinstance(model, ir.Model):
        return model_io.from_ir(model)
    if is_export(model):
        return model_io.from_ir(model.model)
    if isinstance(model, str | os.PathLike):
        return model_io.read(Path(model))
    raise UsageError(
        f"a {type(model).__name__} is no model",
        hint="give a path, bytes, a ModelProto, an onnx_ir.Model or a torch.onnx.ONNXProgram",
    )


def as_given(
    model: Model, source: model_io.Source, done: ir.Model, *, changed: bool, written: Path | None
) -> Given:
    """The result in the form in which the original was given; of a path, the file that was written."""
    if isinstance(model, ir.Model):
        return done
    if isinstance(model, bytes):
        proto = to_proto(done, source) if changed else None
        return model if proto is None else proto.SerializeToString(deterministic=True)
    if isinstance(model, onnx.ModelProto):
        return to_proto(done, source)
    return type(model)(done, model.exported_program) if is_export(model) else written


def is_export(model: Any) -> TypeGuard[ONNXProgram]:
    """Whether this is what torch's exporter returns."""
    kind = type(model)
    return kind.__name__ == "ONNXProgram" and kind.__module__.startswith("torch.onnx")
