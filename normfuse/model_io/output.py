"""Where a model may be written: never over its source, and only where it can be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from normfuse.errors import UsageError
from normfuse.model_io.source import Source

DATA_SUFFIX = ".data"


def data_path(out: Path) -> Path:
    """The data file of a model, beside it."""
    return out.with_name(out.name + DATA_SUFFIX)


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
            f"cannot write {str(out)!r}: it is the input itself, which is never written over",
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
