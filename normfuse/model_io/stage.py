"""Write a model in two steps: staged beside its destination, where a runtime can load it, then committed.

    stage   out's folder: .normfuse-….tmp (model), .normfuse-….tmp (data, where there is any)
    commit  renamed to out and out.data; until then nothing that existed has been touched

Tensors of external data files: beside the source, or in its place, they go on pointing into its files;
elsewhere, and where a copy is asked for, their bytes are copied into one file, `out.data`. New tensors stay
in the model unless it has external data already, or would not fit into a file of 2 GB.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError

from normfuse.errors import InputError, NormfuseError
from normfuse.model_io.data import rename_references, write_data
from normfuse.model_io.external import attach
from normfuse.model_io.output import Destination, Placement, writing
from normfuse.model_io.scratch import FolderLock, Scratch, sweep, sync_folder
from normfuse.model_io.serialize import to_proto
from normfuse.model_io.source import Source


@dataclass
class Staged:
    """A written model that is not in place yet. As a context manager it vanishes unless committed.

    path: the temporary model file, which a runtime can load.
    depends_on: data files of the source that the output goes on using.
    size: bytes of the model and of the data it refers to.
    """

    path: Path
    destination: Destination | None
    depends_on: tuple[Path, ...]
    size: int
    _model: Scratch
    _data: Scratch | None = None
    _proto: onnx.ModelProto | None = field(default=None, repr=False)
    _obsolete: tuple[Path, ...] = ()

    @property
    def is_one_file(self) -> bool:
        """Whether the model file is all there is: no data file, neither a new one nor the source's."""
        return self._data is None and not self.depends_on

    def commit(self) -> Path:
        """Rename into place: afterwards the output is whole; if killed before, it is absent or as it was."""
        if self.destination is None:
            raise NormfuseError("this model was only staged to be run, and has no place to be written to")
        out, data = self.destination.path, self.destination.data
        with self, writing(out):
            if self._data is not None and self._proto is not None:
                rename_references(self._proto, self._data.path.name, data.name)
                _write(self._model, self._proto, out)
                self._data.sync()
            if self.destination.in_place:
                self.path.chmod(stat.S_IMODE(out.stat().st_mode))
            self._model.sync()
            with FolderLock(out.parent):
                self._rename(out, data)
            sync_folder(out.parent)
        return out

    def _rename(self, out: Path, data: Path) -> None:
        if self._data is not None:
            if data.exists() and not (self.destination and self.destination.in_place):
                out.unlink(missing_ok=True)  # an old model must never be seen with the new data
            self._data.keep_as(data)
        self._model.keep_as(out)
        for file in self._obsolete:
            file.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the temporary files; nothing happens after a commit."""
        self._model.discard()
        if self._data is not None:
            self._data.discard()

    def __enter__(self) -> Staged:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def stage(model: ir.Model, source: Source, out: Path | None, placement: Placement | None = None) -> Staged:
    """Write `model`, a rewritten `source`, to temporary files beside `out`.

    out: None stages a model that is only to be run: where its data lies if one may write there, else in the
        system's folder for temporary files.
    """
    placement = placement or Placement()
    destination = Destination.of(source, out, placement) if out is not None else None
    folder = out.parent if out is not None else _work_folder(source)
    shown = out if out is not None else folder
    held = attach(model, source.path.parent if source.path else None, source.name, source.path)
    with writing(shown), ExitStack() as undo:
        sweep(folder)
        copy, split = placement.copy_data and out is not None, bool(source.data_files)
        with write_data(held, folder, copy=copy, split=split) as data:
            if data.scratch is not None:
                undo.callback(data.scratch.discard)
            proto = to_proto(model, source)
        scratch = Scratch(folder)
        undo.callback(scratch.discard)
        size = _write(scratch, proto, shown)
        undo.pop_all()
    kept = proto if data.scratch is not None else None
    obsolete = destination.obsolete(source, data.shared) if destination is not None else ()
    return Staged(
        scratch.path, destination, data.shared, size + data.size, scratch, data.scratch, kept, obsolete
    )


def copy_unchanged(source: Source, out: Path | None, placement: Placement | None = None) -> Staged:
    """Stage the source as it is: byte for byte, unless its data has to move along."""
    placement = placement or Placement()
    folder = out.parent if out is not None else _work_folder(source)
    copied = placement.copy_data and out is not None
    moves = bool(source.data_files) and (copied or not _beside(source, folder))
    if moves or (source.path is None and source.proto is None):
        return stage(source.again().model, source, out, placement)
    destination = Destination.of(source, out, placement) if out is not None else None
    shown = out if out is not None else folder
    with writing(shown), ExitStack() as undo:
        sweep(folder)
        scratch = Scratch(folder)
        undo.callback(scratch.discard)
        if source.path is not None:
            with open(source.path, "rb") as original_file:
                shutil.copyfileobj(original_file, scratch.file, 1 << 20)
            scratch.file.flush()
        elif source.proto is not None:
            _write(scratch, source.proto, shown)
        undo.pop_all()
    return Staged(scratch.path, destination, source.data_files, source.size, scratch)


@contextmanager
def original(source: Source) -> Iterator[Path]:
    """A file of the source that a runtime can load: its own, or a temporary one."""
    if source.path is not None:
        yield source.path
        return
    with copy_unchanged(source, None) as staged:
        yield staged.path


def _write(scratch: Scratch, proto: onnx.ModelProto, shown: Path) -> int:
    try:
        data = proto.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise InputError(f"{shown}: the graph without its weights is larger than 2 GB ({error})") from error
    scratch.file.seek(0)
    scratch.file.write(data)
    scratch.file.truncate()
    scratch.file.flush()
    return len(data)


def _beside(source: Source, folder: Path) -> bool:
    """Whether a model in `folder` may go on using the data files of the source."""
    if source.path is None or not os.path.samefile(source.path.parent, folder):
        return False
    real = Path(os.path.realpath(folder))
    return all(file.is_relative_to(real) for file in source.data_files)


def _work_folder(source: Source) -> Path:
    folders = {file.parent for file in source.data_files}
    if source.path is not None and folders:
        folders = {source.path.parent}
    if len(folders) == 1:
        folder = folders.pop()
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.gettempdir())
