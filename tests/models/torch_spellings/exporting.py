"""Every way in which a module is exported, and a cache of the results on disk.

    ts    TorchScript           tsp   the same with training=PRESERVE, nothing folded
    dy    dynamo                dyraw without its optimizer, functions inlined
    dyd   decomposed to core operators first

The cache lies in $NORMFUSE_TEST_CACHE, or else in the folder for temporary files; its key holds torch's version
and the source of the modules, so that nothing stale is read. An exporter that fails leaves its reason there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.inliner
import torch
from torch import nn
from torch._decomp import core_aten_decompositions, get_decompositions

from .spelling import Spelling

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class ExportError(Exception):
    """The exporter itself could not write the module; holds the last line of what it said."""


@dataclass(frozen=True)
class Way:
    """An exporter, an opset, a dtype, and whether the batch (and the number of tokens) may vary."""

    exporter: str
    opset: int
    dtype: str
    dynamic: bool = False

    @property
    def name(self) -> str:
        """Such as fp32-ts~16."""
        return f"{self.dtype}-{self.exporter}{'~' if self.dynamic else ''}{self.opset}"


_DYNAMO = (
    *(Way("dy", opset, "fp32") for opset in (18, 20, 23)), Way("dy", 18, "fp32", dynamic=True),
    *(Way("dyd", opset, "fp32") for opset in (18, 23)), Way("dyd", 18, "fp32", dynamic=True),
    Way("dyraw", 18, "fp32"),
)  # fmt: skip
_DYNAMO_HALF = (("dy", 18), ("dy", 23), ("dyd", 18))
_SCRIPT = (
    *(Way("ts", opset, "fp32") for opset in (11, 13, 16, 17, 18)),
    *(Way("ts", opset, "fp32", dynamic=True) for opset in (16, 17)),
)
_SCRIPT_HALF = (("ts", 13), ("ts", 17))
_PRESERVED = (Way("tsp", 13, "fp32"), Way("tsp", 17, "fp32"), Way("tsp", 13, "fp16"))


def ways(spelling: Spelling) -> Iterator[Way]:
    """Every way to export one module, float32 first."""
    yield from _DYNAMO
    if spelling.torchscript:
        yield from _SCRIPT
    if spelling.preserved:
        yield from _PRESERVED
    half = _DYNAMO_HALF + (_SCRIPT_HALF if spelling.torchscript else ())
    for dtype in ("fp16", *(("bf16",) if spelling.bfloat16 else ())):
        yield from (Way(exporter, opset, dtype) for exporter, opset in half)


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
    return folder / _version(spelling.build.__module__)


@functools.cache
def _version(room: str) -> str:
    source = Path(sys.modules[room].__file__ or "")
    digest = hashlib.sha256(torch.__version__.encode())
    for each in (source, source.with_name("spelling.py"), Path(__file__)):
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
    return spelling.build().to(kind), tuple(tensor.to(kind) for tensor in spelling.inputs())


def _by_torchscript(spelling: Spelling, way: Way) -> onnx.ModelProto:
    module, inputs = _prepared(spelling, way.dtype)
    names = [f"input{index}" for index in range(len(inputs))]
    preserve = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    buffer = io.BytesIO()
    torch.onnx.export(
        module, inputs, buffer, dynamo=False, opset_version=way.opset, input_names=names,
        output_names=["output"],
        dynamic_axes=dict(zip(names, spelling.dynamic, strict=True)) if way.dynamic else None,
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
def _program(
    spelling: Spelling, dtype: str, dynamic: bool, decomposed: bool
) -> torch.export.ExportedProgram:
    module, inputs = _prepared(spelling, dtype)
    symbols = {name: torch.export.Dim(name) for axes in spelling.dynamic for name in axes.values()}
    shapes = tuple({axis: symbols[name] for axis, name in axes.items()} for axes in spelling.dynamic)
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
