"""Where a model may be written, and its data with it: never over its source unless that is what was asked.

elsewhere   OUT and OUT.data, which replace what was there
in place    OUT and a data file whose name nothing uses yet, so that renaming OUT is the one moment in
            which old model and old data become new model and new data; only then the old data goes
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from normfuse.errors import UsageError
from normfuse.model_io.source import Source

DATA_SUFFIX = ".data"


@dataclass(frozen=True)
class Placement:
    """How a model is to be written.

    copy_data: gather all its data in one file of its own, even where the source's files could be shared.
    in_place: the output replaces the source.
    """

    copy_data: bool = False
    in_place: bool = False


@dataclass(frozen=True)
class Destination:
    """The model file, and the name for its data file if it comes to have one."""

    path: Path
    data: Path
    in_place: bool = False

    @staticmethod
    def of(source: Source, out: Path, placement: Placement) -> Destination:
        """The destination; raises `UsageError` when nothing can, or nothing may, be written there."""
        if placement.in_place:
            _check_in_place(out)
            return Destination(out, _unused_data_path(source, out), in_place=True)
        check_output(source, out)
        return Destination(out, data_path(out))

    def obsolete(self, source: Source, kept: tuple[Path, ...]) -> tuple[Path, ...]:
        """Data files that only the model which is replaced had: named after it, and no longer referred to."""
        if not self.in_place:
            return ()
        folder = Path(os.path.realpath(self.path.parent))
        return tuple(
            file
            for file in source.data_files
            if file not in kept and file.parent == folder and file.name.startswith(f"{self.path.name}.")
        )


def data_path(out: Path) -> Path:
    """The data file of a model, beside it."""
    return out.with_name(out.name + DATA_SUFFIX)


def _unused_data_path(source: Source, out: Path) -> Path:
    """`OUT.data`, or `OUT.normfuse.data` where that exists already.

    What bears the second name and is no data of the source was left by a run that was killed.
    """
    if not os.path.lexists(data_path(out)):
        return data_path(out)
    for k in count(1):
        candidate = data_path(out.with_name(f"{out.name}.normfuse{k if k > 1 else ''}"))
        in_use = any(_same(candidate, file) for file in source.data_files)
        if not in_use and (candidate.is_file() or not os.path.lexists(candidate)):
            return candidate
    raise AssertionError("unreachable: there is always a next number")


def _check_in_place(out: Path) -> None:
    if out.is_symlink():
        raise UsageError(
            f"cannot replace {str(out)!r}: it is a link, and what it leads to may belong to others",
            hint="write another file with -o, or give the path that it leads to",
        )
    if not os.access(out, os.W_OK):
        raise UsageError(f"cannot replace {str(out)!r}: it is write-protected")


def check_output(source: Source, out: Path) -> None:
    """Raise `UsageError` when nothing can, or nothing may, be written at `out`."""
    if out.is_dir():
        raise UsageError(
            f"cannot write {str(out)!r}: it is a folder", hint="name a file in it: -o FOLDER/model.onnx"
        )
    if not out.parent.is_dir():
        raise UsageError(f"cannot write {str(out)!r}: there is no folder {str(out.parent)!r}")
    for written in (out, data_path(out)):
        if written.exists() and not written.is_file():  # replacing /dev/null would break the system
            raise UsageError(f"cannot write {str(written)!r}: it is no ordinary file")
    if source.path is not None and _same(out, source.path):
        raise UsageError(
            f"cannot write {str(out)!r}: it is the input itself, which is only written over with --in-place",
            hint="name another output with -o",
        )
    for written in (out, data_path(out)):
        for data in source.data_files:
            if _same(written, data):
                raise UsageError(
                    f"cannot write {str(written)!r}: it holds the weights of the input",
                    hint="name another output with -o",
                )


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False  # one of them is not there, or may not even be looked at


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn what the file system says while `out` is written into an error for the user."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {str(out)!r}: {error.strerror or error}") from error
