"""External data: where a tensor's bytes lie, checked before anything is read.

A location is a path relative to the model's folder. It must stay inside that folder; when model and data
are symbolic links, as model caches lay them out, the data may instead lie inside the folder of the resolved
model path (onnxruntime loads such models, so normfuse does). Offsets and lengths must fit the file and the
tensor. After that a tensor is read through a map of the file, and only when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx_ir as ir

from normfuse.errors import InputError
from normfuse.model_io.slots import Slot, slots

_SHOWN = 100  # letters of a location that is too long


class MappedTensor(ir.ExternalTensor):
    """An external tensor whose file, offset and length have been checked.

    folder: what `location` is relative to; file: the resolved path of the data.
    """

    def __init__(self, tensor: ir.ExternalTensor, folder: Path, file: Path) -> None:
        super().__init__(
            tensor.location,
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=ir.Shape(tensor.shape),
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props) or None,
        )
        self.folder = folder
        self.file = file

    @property
    def path(self) -> str:
        """The resolved file; what onnx-ir maps."""
        return str(self.file)

    @property
    def start(self) -> int:
        """The first byte in the file."""
        return self.offset or 0

    def tobytes(self) -> bytes:
        """The bytes as stored (a tensor without elements has none, where onnx-ir fails)."""
        return super().tobytes() if self.nbytes else b""


def attach(model: ir.Model, folder: Path | None, where: str, model_path: Path | None = None) -> list[Slot]:
    """Check every external tensor of the model and make it readable; returns the places of all tensors.

    folder: what locations are relative to; None when only tensors that know their own folder can be found.
    where: the model's name, for messages.
    model_path: the model file, whose resolved folder may hold the data as well.
    """
    resolver = _Resolver(folder, where, model_path)
    found: list[Slot] = []
    for slot in slots(model):
        if isinstance(slot.tensor, ir.ExternalTensor) and not isinstance(slot.tensor, MappedTensor):
            mapped = resolver.mapped(slot.tensor)
            slot.put(mapped)
            slot = slot._replace(tensor=mapped)
        found.append(slot)
    return found


def mapped_tensors(held: Iterable[Slot]) -> list[MappedTensor]:
    """Those of the tensors that lie in data files."""
    return [slot.tensor for slot in held if isinstance(slot.tensor, MappedTensor)]


class _Resolver:
    """Finds and checks data files; remembers them, so that each file is looked up once."""

    def __init__(self, folder: Path | None, where: str, model_path: Path | None) -> None:
        self.folder, self.where = folder, where
        self.model_folder = Path(os.path.realpath(model_path)).parent if model_path else None
        self.files: dict[tuple[Path, str], Path] = {}
        self.sizes: dict[Path, int] = {}

    def mapped(self, tensor: ir.ExternalTensor) -> MappedTensor:
        folder = Path(tensor.base_dir) if tensor.base_dir else self.folder
        location = os.fspath(tensor.location)
        if folder is None:
            raise InputError(
                f"{self.where}: tensor {tensor.name!r} lies in the external file {location!r}, "
                "and a model given in memory does not say in which folder",
                hint="give the path of the model instead",
            )
        key = (folder, location)
        if key not in self.files:
            self.files[key] = self._resolve(folder, location, tensor.name)
        file = self.files[key]
        self._check_extent(tensor, file)
        return MappedTensor(tensor, folder, file)

    def _resolve(self, folder: Path, location: str, name: str) -> Path:
        place = f"{self.where}: external data of tensor {name!r}"
        posix, windows = PurePosixPath(location), PureWindowsPath(location)
        if not location or "\0" in location:
            raise InputError(f"{place} has no valid location: {location!r}")
        if posix.is_absolute() or windows.drive or windows.root:
            raise InputError(f"{place} has the absolute path {location!r}; it must be relative to the model")
        if ".." in posix.parts or ".." in windows.parts:
            raise InputError(f"{place} points out of the model's folder: {location!r}")
        file = Path(os.path.realpath(folder / location))
        allowed = [Path(os.path.realpath(folder))]
        if self.model_folder is not None and folder == self.folder:
            allowed.append(self.model_folder)
        if not any(file.is_relative_to(inside) for inside in allowed):
            raise InputError(
                f"{place} is a link out of the model's folder: {location!r} leads to {str(file)!r}"
            )
        try:
            found = file.is_file()
        except OSError as error:  # the name is too long, or a folder on the way may not be entered
            raise InputError(f"{place} cannot be read: {error.strerror}: {location[:_SHOWN]!r}") from error
        if not found:
            kind = "is not a file" if file.exists() else "is missing"
            raise InputError(
                f"{place} {kind}: {str(folder / location)!r}",
                hint="a model with external data must be kept together with its data files",
            )
        self.sizes[file] = _size(file, place)
        return file

    def _check_extent(self, tensor: ir.ExternalTensor, file: Path) -> None:
        place = f"{self.where}: external data of tensor {tensor.name!r}"
        offset, length, needed = tensor.offset or 0, tensor.length, tensor.nbytes
        if length is not None and length != needed:
            raise InputError(
                f"{place} is {length} bytes long, but {tensor.dtype.name} {list(tensor.shape)} takes {needed}"
            )
        if offset + needed > self.sizes[file]:
            raise InputError(
                f"{place} ends at byte {offset + needed}, but {file.name!r} has only {self.sizes[file]}",
                hint="the data file is truncated, or belongs to another model",
            )


def _size(file: Path, place: str) -> int:
    try:
        with open(file, "rb") as data:
            return os.fstat(data.fileno()).st_size
    except OSError as error:
        raise InputError(f"{place} cannot be read: {error.strerror}: {str(file)!r}") from error
