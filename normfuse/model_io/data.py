"""The data file of an output: which tensors go there, and how the model refers to them.

While a model is staged the file has a temporary name; the references are renamed when it is committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from normfuse.model_io.extents import Layout
from normfuse.model_io.external import MappedTensor
from normfuse.model_io.scratch import Scratch
from normfuse.model_io.slots import Slot
from normfuse.model_io.tensors import tensors_of, tensors_of_nodes

# Above this many bytes of tensors a model is no longer written as a single file (the format ends at 2 GB).
INLINE_LIMIT = 1_800_000_000
# A new tensor of a model with external data goes to the data file from this size on; when a model has to be
# split, its tensors go there from the other on. Runtimes want small ones, such as shapes, in the model.
_BIG, _ANY = 64 << 10, 1 << 10
_ALIGNMENT = 64


@dataclass(frozen=True)
class Written:
    """What became of the tensors.

    scratch: the new data file, if there is one, still under its temporary name.
    shared: the source's data files that remain in use.
    size: bytes of both that the model refers to.
    """

    scratch: Scratch | None
    shared: tuple[Path, ...]
    size: int


def rename_references(proto: onnx.ModelProto, temporary: str, final: str) -> None:
    """Make every reference in the message to the temporary data file point to the final one."""
    for tensor in all_tensors(proto):
        for entry in tensor.external_data:
            if entry.key == "location" and entry.value == temporary:
                entry.value = final


@contextmanager
def write_data(
    held: Iterable[Slot], folder: Path, *, copy: bool = False, split: bool = False
) -> Iterator[Written]:
    """Write the tensors that need a data file in `folder`; inside the context the model refers to it.

    held: all tensors of the model, in their places.
    copy: also those that a model in `folder` could use where they lie.
    split: whether new tensors belong into a data file, because those of the source lie in one.
    """
    external, inline = _by_place(held)
    usable = _Usable(folder)
    shared = [slot for slot, tensor in external if not copy and usable(tensor)]
    moved = [(slot, tensor) for slot, tensor in external if copy or not usable(tensor)]
    big = _too_big(inline, split)
    kept = {slot.tensor for slot in shared if isinstance(slot.tensor, MappedTensor)}
    shared_size = sum({(t.file, t.start): t.nbytes for t in kept}.values())
    files = tuple(sorted({t.file for t in kept}))
    if not moved and not big:
        yield Written(None, files, shared_size)
        return
    layout = Layout(tensor for _, tensor in moved)
    scratch = Scratch(folder)
    try:
        layout.copy(scratch.file)
        end = _refer(moved, big, layout, scratch)
        yield Written(scratch, files, shared_size + end)
    except BaseException:
        scratch.discard()
        raise
    finally:
        for slot in [*(slot for slot, _ in moved), *big]:
            slot.put(slot.tensor)


def _by_place(held: Iterable[Slot]) -> tuple[list[tuple[Slot, MappedTensor]], list[Slot]]:
    external: list[tuple[Slot, MappedTensor]] = []
    inline: list[Slot] = []
    for slot in held:
        if isinstance(slot.tensor, MappedTensor):
            external.append((slot, slot.tensor))
        elif slot.initializer and slot.tensor.dtype is not ir.DataType.STRING:
            inline.append(slot)
    return external, inline


class _Usable:
    """Whether a model in `folder` can use a tensor where it lies (runtimes refuse links that lead out)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.real = folder, Path(os.path.realpath(folder))
        self._known: dict[tuple[Path, Path], bool] = {}

    def __call__(self, tensor: MappedTensor) -> bool:
        key = (tensor.file, tensor.folder)
        if key not in self._known:
            inside = tensor.file.is_relative_to(self.real)
            self._known[key] = inside and os.path.samefile(tensor.folder, self.folder)
        return self._known[key]


def _too_big(inline: list[Slot], split: bool) -> list[Slot]:
    if sum(slot.tensor.nbytes for slot in inline) > INLINE_LIMIT:
        return [slot for slot in inline if slot.tensor.nbytes >= _ANY]
    if not split:
        return []
    # What the source itself kept in the model stays there; only what a rewrite made is placed anew.
    made = [slot for slot in inline if not isinstance(slot.tensor, ir.TensorProtoTensor)]
    return [slot for slot in made if slot.tensor.nbytes >= _BIG]


def _refer(moved: list[tuple[Slot, MappedTensor]], big: list[Slot], layout: Layout, scratch: Scratch) -> int:
    """Append the new tensors and put a reference in the place of each; returns the length of the file."""
    for slot, tensor in moved:
        slot.put(_reference(tensor, scratch, layout.offset(tensor)))
    end = layout.end
    for slot in big:
        end += -end % _ALIGNMENT
        scratch.file.seek(end)
        _write(slot.tensor, scratch)
        slot.put(_reference(slot.tensor, scratch, end))
        end += slot.tensor.nbytes
    scratch.file.flush()
    scratch.file.truncate(end)
    return end


def _write(tensor: ir.TensorProtocol, scratch: Scratch) -> None:
    if isinstance(tensor, ir.Tensor):
        tensor.tofile(scratch.file)  # straight from its array, without a copy
    else:
        scratch.file.write(tensor.tobytes())


def _reference(tensor: ir.TensorProtocol, scratch: Scratch, offset: int) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        scratch.path.name,
        offset,
        tensor.nbytes,
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name or "",
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props) or None,
    )


def all_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers and attributes, in bodies and functions too."""
    for graph in _graphs([proto.graph]):
        yield from tensors_of(graph)
    for function in proto.functions:
        yield from tensors_of_nodes(function.node)
        for graph in _graphs(_inner(function.node)):
            yield from tensors_of(graph)


def _graphs(graphs: Iterable[onnx.GraphProto]) -> Iterator[onnx.GraphProto]:
    for graph in graphs:
        yield graph
        yield from _graphs(_inner(graph.node))


def _inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
            yield from attribute.graphs
