"""Export one module in one way, with a cache of the results on disk.

The cache lies in $NORMFUSE_TEST_CACHE, or else in the folder for temporary files; its key holds torch's
version and the source of the modules, so that nothing stale is read. An exporter that fails leaves its
reason there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx.inliner
import torch
from torch import nn
from torch._decomp import core_aten_decompositions, get_decompositions

from .samples import Sample
from .table import Spelling, Way

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class ExportError(Exception):
    """The exporter itself could not write the module; holds the last line of what it said."""


def sample(spelling: Spelling) -> Sample:
    """The module of a spelling, and its inputs."""
    room = importlib.import_module(f"{__package__}.{spelling.room}")
    result: Sample = room.SAMPLES[spelling.name]
    return result


def export(spelling: Spelling, way: Way, folder: Path | None = None) -> Path:
    """The path of the exported model, made at the first call.

    Raises ExportError where the exporter cannot write it.
    """
    path = (folder or cache(spelling)) / f"{spelling.name}-{way.name}.onnx"
    failure = path.with_suffix(".txt")
    if failure.exists():
        raise ExportError(failure.read_text())
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        try:
            onnx.save(_exported(spelling, way), unfinished)
        except Exception as error:  # torch raises anything at all, and what matters is only that it failed
            failure.write_text((str(error).strip().splitlines() or [type(error).__name__])[-1])
            raise ExportError(failure.read_text()) from error
        unfinished.rename(path)
    return path


def cache(spelling: Spelling) -> Path:
    """The folder for exports of a module, and of those that stand in the same file, by this torch."""
    root = os.environ.get("NORMFUSE_TEST_CACHE")
    folder = Path(root) if root else Path(tempfile.gettempdir()) / "normfuse-test-cache"
    return folder / _version(spelling.room)


@functools.cache
def _version(room: str) -> str:
    source = Path(__file__).with_name(f"{room}.py")
    digest = hashlib.sha256(torch.__version__.encode())
    for each in (source, source.with_name("samples.py"), Path(__file__)):
        digest.update(each.read_bytes())
    return f"{source.stem}-{digest.hexdigest()[:12]}"


def _exported(spelling: Spelling, way: Way) -> onnx.ModelProto:
    with _quiet():
        return _by_torchscript(spelling, way) if way.exporter in ("ts", "tsp") else _by_dynamo(spelling, way)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters print progress and warn about themselves."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def _prepared(spelling: Spelling, dtype: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    kind = DTYPES[dtype]
    each = sample(spelling)
    return each.build().to(kind), tuple(tensor.to(kind) for tensor in each.inputs())


def _by_torchscript(spelling: Spelling, way: Way) -> onnx.ModelProto:
    module, inputs = _prepared(spelling, way.dtype)
    names = [f"input{index}" for index in range(len(inputs))]
    preserve = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    buffer = io.BytesIO()
    torch.onnx.export(
        module, inputs, buffer, dynamo=False, opset_version=way.opset, input_names=names,
        output_names=["output"],
        dynamic_axes=dict(zip(names, sample(spelling).dynamic, strict=True)) if way.dynamic else None,
        **(preserve if way.exporter == "tsp" else {}),
    )  # fmt: skip
    return onnx.load_from_string(buffer.getvalue())


def _by_dynamo(spelling: Spelling, way: Way) -> onnx.ModelProto:
    program = torch.onnx.export(
        _program(spelling, way.dtype, way.dynamic, way.exporter == "dyd"), dynamo=True,
        opset_version=way.opset, optimize=way.exporter != "dyraw", verbose=False,
    )  # fmt: skip
    model: onnx.ModelProto = program.model_proto
    return onnx.inliner.inline_local_functions(model) if way.exporter == "dyraw" else model


@functools.lru_cache(maxsize=2)
def _program(spelling: Spelling, dtype: str, dynamic: bool, decomposed: bool) -> torch.export.ExportedProgram:
    module, inputs = _prepared(spelling, dtype)
    varying = sample(spelling).dynamic
    symbols = {name: torch.export.Dim(name) for axes in varying for name in axes.values()}
    shapes = tuple({axis: symbols[name] for axis, name in axes.items()} for axes in varying)
    if isinstance(module, nn.Sequential):
        module = _Called(module)
    program = torch.export.export(module, inputs, dynamic_shapes=shapes if dynamic else None)
    return program.run_decompositions(_core()) if decomposed else program


def _core() -> dict[torch._ops.OperatorBase, Callable[..., object]]:
    """Decompositions down to core operators, the norms that torch counts among those included."""
    aten = torch.ops.aten
    norms = [
        aten.native_layer_norm, aten.native_group_norm, aten.native_batch_norm,
        aten._native_batch_norm_legit, aten._native_batch_norm_legit_no_training,
    ]  # fmt: skip
    return {**core_aten_decompositions(), **get_decompositions(norms)}


class _Called(nn.Module):
    """A Sequential whose argument has a name that dynamic shapes can be given for."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same."""
        result: torch.Tensor = self.inner(x)
        return result
