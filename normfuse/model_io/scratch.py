"""Temporary files beside the output: one name for each run, locked while it lives, swept when it is dead.

    .normfuse-1f3a9c2e.tmp   written, synced, then renamed to its final name; nobody ever sees half a file

The owner holds a lock on its file for as long as it lives. A killed run cannot clean up, but its lock is gone
with it, so the next run in that folder can tell the stray from a file that is in use (which neither a
process id nor an age could, across containers and network folders).
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from normfuse.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows: an open file cannot be removed there, which serves the same end
    fcntl = None  # type: ignore[assignment]

PREFIX, SUFFIX = ".normfuse-", ".tmp"
_ATTEMPTS = 16


class Scratch:
    """One temporary file. It vanishes unless it is renamed by `keep_as`."""

    def __init__(self, folder: Path) -> None:
        self.path, self.file = _create(folder)
        self._kept = False

    def sync(self) -> None:
        """Bring everything to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def keep_as(self, final: Path) -> None:
        """Rename to the final name, which is replaced at once or not at all."""
        if fcntl is None:
            self.file.close()  # Windows renames no open file
        os.replace(self.path, final)
        self._kept = True
        self.file.close()

    def discard(self) -> None:
        """Remove the file, unless it was kept; may be called any number of times."""
        self.file.close()
        if not self._kept:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def _create(folder: Path) -> tuple[Path, BinaryIO]:
    """A new locked file. A sweep of another run may take it in the moment before the lock: then again."""
    for _ in range(_ATTEMPTS):
        path = folder / f"{PREFIX}{secrets.token_hex(4)}{SUFFIX}"
        try:
            file = open(path, "x+b")  # noqa: SIM115 (closed by keep_as or discard)
        except FileExistsError:
            continue
        if _lock(file) and _still_there(path, file):
            return path, file
        file.close()
    raise UsageError(f"cannot create a temporary file in {str(folder)!r}: other runs keep removing it")


def _lock(file: BinaryIO) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a folder without locks; the sweep finds none either and leaves the file alone
    return True


def _still_there(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def sweep(folder: Path) -> None:
    """Remove the temporary files of runs that are no longer alive."""
    for path in folder.glob(f"{PREFIX}*{SUFFIX}"):
        try:
            with open(path, "rb") as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink(missing_ok=True)
            if fcntl is None:
                path.unlink(missing_ok=True)
        except OSError:
            continue  # in use, or not ours to remove


def sync_folder(folder: Path) -> None:
    """Bring a rename to the disk, where folders can be synced at all."""
    if fcntl is None:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FolderLock:
    """Held while two files are renamed, so that two runs with the same output do not mix theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        if fcntl is None:
            return
        self._descriptor = os.open(self.folder, os.O_RDONLY)
        with suppress(OSError):  # a folder without locks: one run at a time is then up to the user
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
