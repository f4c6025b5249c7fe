"""What was read: the model, where it came from, and the data files it depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir


@dataclass(frozen=True)
class Source:
    """A model as it was given, with its weights still on disk where they lie in external data files.

    name: what messages call it, usually the path.
    model: the graph, free to be changed.
    again: reads the source once more, for a fresh graph.
    path: the file it came from, or None for a model that was given in memory.
    proto: the message that `model` was built from; None for a model given as onnx_ir.Model.
        It is what tells how inputs and outputs looked before any rewrite, so it is never changed.
    constants: the initializers that are graph inputs as well, by name.
    data_files: the external data files, resolved.
    size: bytes of the model and of the data it refers to.
    warnings: what a rewritten model cannot keep, for the user.
    """

    name: str
    model: ir.Model
    again: Callable[[], Source]
    path: Path | None = None
    proto: onnx.ModelProto | None = None
    constants: tuple[tuple[str, ir.TensorProtocol], ...] = ()
    data_files: tuple[Path, ...] = ()
    size: int = 0
    warnings: tuple[str, ...] = ()
