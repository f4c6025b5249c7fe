"""Read a model, refusing with a clear message whatever is not one.

The graph is read, the weights are not: external data stays on disk until a tensor is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from normfuse.errors import InputError
from normfuse.model_io.causes import cause, first_line
from normfuse.model_io.collection import no_collection
from normfuse.model_io.external import MappedTensor, attach, mapped_tensors
from normfuse.model_io.source import Source
from normfuse.model_io.typed import check_types
from normfuse.model_io.validate import validate

PROTOBUF_LIMIT = 2**31 - 1
_T = TypeVar("_T")
_TRAINING_INFO = "the training information in the model is not carried over into a rewritten one"


def read(path: Path) -> Source:
    """Read the ONNX model at `path`."""
    where = str(path)
    data = _bytes(path, where)
    proto, size = parsed(data, where), len(data)
    del data  # a copy of the whole file, which the message no longer needs
    return _source(proto, where, size, lambda: read(path), path)


def from_bytes(data: bytes, where: str = "standard input") -> Source:
    """Take a model as the bytes of its file; its weights cannot lie in other files."""
    _check_bytes(data, where)
    return _source(parsed(data, where), where, len(data), lambda: from_bytes(data, where), None)


def parsed(data: bytes, where: str) -> onnx.ModelProto:
    """The message of a model file; InputError, which names `where`, for what is none."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise InputError(
            f"{where}: not an ONNX model, or a damaged one ({first_line(error)})",
        ) from error
    return proto


def from_proto(proto: onnx.ModelProto, folder: Path | None = None) -> Source:
    """Take a model that is in memory as a message, which is left as it is.

    folder: where its external data lies, if it has any.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return _source(copy, "the model", copy.ByteSize(), lambda: from_proto(proto, folder), None, folder)


@no_collection()
def from_ir(model: ir.Model) -> Source:
    """Take a model that is in memory as onnx_ir.Model, which is left as it is."""
    where = "the model"
    copy = _decoded(model.clone, where)
    held = attach(copy, None, where)
    check_types(copy, where)
    size = sum(slot.tensor.nbytes for slot in held)
    files = _files(mapped_tensors(held))
    return Source(
        where, copy, lambda: from_ir(model), constants=_constants(copy), data_files=files, size=size
    )


@no_collection()
def _source(
    proto: onnx.ModelProto,
    where: str,
    size: int,
    again: Callable[[], Source],
    path: Path | None,
    folder: Path | None = None,
) -> Source:
    _decoded(lambda: validate(proto, where), where)
    model = _decoded(lambda: ir.from_proto(proto), where)
    held = attach(model, path.parent if path else folder, where, path)
    check_types(model, where)
    mapped = mapped_tensors(held)
    shared = {(tensor.file, tensor.start): tensor.nbytes for tensor in mapped}
    return Source(
        where,
        model,
        again,
        path,
        proto,
        _constants(model),
        _files(mapped),
        size + sum(shared.values()),
        (_TRAINING_INFO,) if proto.training_info else (),
    )


def _files(mapped: list[MappedTensor]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(tensor.file for tensor in mapped))


def _constants(model: ir.Model) -> tuple[tuple[str, ir.TensorProtocol], ...]:
    return tuple(
        (value.name or "", value.const_value) for value in model.graph.inputs if value.const_value is not None
    )


def _bytes(path: Path, where: str) -> bytes:
    try:
        if path.is_dir():
            raise InputError(f"{where}: a folder, not a model file")
        if not path.exists():
            raise InputError(f"{where}: no such file")
        if not path.is_file():
            raise InputError(f"{where}: not an ordinary file")
        if path.stat().st_size > PROTOBUF_LIMIT:
            raise InputError(
                f"{where}: larger than 2 GB, which no ONNX file can be (weights go to a data file)"
            )
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror}") from error
    _check_bytes(data, where)
    return data


def _check_bytes(data: bytes, where: str) -> None:
    if not data:
        raise InputError(f"{where}: the file is empty")
    if data.startswith(b"version https://git-lfs"):
        raise InputError(f"{where}: a Git LFS pointer, not the model itself", hint="run: git lfs pull")


def _decoded(build: Callable[[], _T], where: str) -> _T:
    """Run one step that decodes the message; a field that holds nonsense becomes an `InputError`."""
    try:
        return build()
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: damaged, a name in it is not text ({error.reason})") from error
    except (ir.serde.SerdeError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise InputError(
            f"{where}: not a valid model, or one of a kind that is not supported: {cause(error)}"
        ) from error
