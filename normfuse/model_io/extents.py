"""Copy what is used of data files into a new one: in the kernel where it can, holes kept, nothing loaded.

    weights.bin   [ w0 | w1 | unused     | w2 ]
    out.data      [ w0 | w1 | w2 ]                  one extent for neighbours, w0 and w1

Each extent keeps its place within a block, so that file systems which can share blocks (btrfs, xfs) do so
instead of copying. Never a hard link: two links to one data file make other tools refuse both.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from normfuse.model_io.external import MappedTensor

BLOCK = 4096
_CHUNK = 64 << 20
# What the kernel says when it cannot copy between these two files: then it is done by hand.
_UNSUPPORTED = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EBADF}


@dataclass(frozen=True)
class Extent:
    """Bytes `start` to `end` of a file."""

    file: Path
    start: int
    end: int


@dataclass(frozen=True)
class Placed:
    """An extent, and the offset that it has in the new file."""

    extent: Extent
    offset: int


class Layout:
    """Where each copied tensor will lie in the new file."""

    def __init__(self, tensors: Iterable[MappedTensor]) -> None:
        self.placed: list[Placed] = []
        self.end = 0
        for extent in _extents(tensors):
            offset = _at_or_after(self.end, extent.start % BLOCK)
            self.placed.append(Placed(extent, offset))
            self.end = offset + extent.end - extent.start
        self._starts: dict[Path, list[Placed]] = {}
        for placed in self.placed:
            self._starts.setdefault(placed.extent.file, []).append(placed)

    def offset(self, tensor: MappedTensor) -> int:
        """The tensor's offset in the new file."""
        if not tensor.nbytes:
            return 0
        runs = self._starts[tensor.file]
        run = runs[bisect_right(runs, tensor.start, key=lambda placed: placed.extent.start) - 1]
        return run.offset + tensor.start - run.extent.start

    def copy(self, out: BinaryIO) -> None:
        """Copy every extent to its place."""
        out.flush()
        for placed in self.placed:
            with open(placed.extent.file, "rb") as source:
                _copy(source, out, placed)
        if self.end > os.fstat(out.fileno()).st_size:
            out.truncate(self.end)  # the last extent ends in a hole


def _extents(tensors: Iterable[MappedTensor]) -> list[Extent]:
    """What is used of each file; gaps below a block are kept, they are padding."""
    spans = sorted({(t.file, t.start, t.start + t.nbytes) for t in tensors if t.nbytes})
    merged: list[Extent] = []
    for file, start, end in spans:
        last = merged[-1] if merged else None
        if last is not None and last.file == file and start < last.end + BLOCK:
            merged[-1] = Extent(file, last.start, max(last.end, end))
        else:
            merged.append(Extent(file, start, end))
    return merged


def _at_or_after(position: int, residue: int) -> int:
    """The first offset from `position` on that lies `residue` bytes into a block."""
    return position + (residue - position) % BLOCK


def _copy(source: BinaryIO, out: BinaryIO, placed: Placed) -> None:
    shift = placed.offset - placed.extent.start
    for start, end in _data_ranges(source.fileno(), placed.extent.start, placed.extent.end):
        _copy_range(source.fileno(), out.fileno(), start, end, shift)


def _data_ranges(source: int, start: int, end: int) -> Iterable[tuple[int, int]]:
    """The parts of a range that are not holes of a sparse file."""
    if not hasattr(os, "SEEK_DATA"):
        yield start, end
        return
    while start < end:
        try:
            data = os.lseek(source, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end of the file
                return
            yield start, end  # a file system that does not say
            return
        if data >= end:
            return
        hole = min(os.lseek(source, data, os.SEEK_HOLE), end)
        yield data, hole
        start = hole


def _copy_range(source: int, out: int, start: int, end: int, shift: int) -> None:
    in_kernel = hasattr(os, "copy_file_range")
    while start < end:
        size = min(end - start, _CHUNK)
        if in_kernel:
            try:
                copied = os.copy_file_range(source, out, size, start, start + shift)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                copied = 0
            in_kernel = copied > 0
        if not in_kernel:
            copied = _write_all(out, os.pread(source, min(size, 4 << 20), start), start + shift)
        if not copied:
            raise OSError(errno.EIO, "the data file became shorter while it was copied")
        start += copied


def _write_all(out: int, data: bytes, offset: int) -> int:
    view = memoryview(data)
    while view:
        written = os.pwrite(out, view, offset)
        view, offset = view[written:], offset + written
    return len(data)
