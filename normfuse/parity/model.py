"""A model file as parity reads it: nodes in order, who produces what, and constants on demand.

Weights in external files stay on disk until an extracted piece needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import AttributeProto, TensorProto, numpy_helper

from normfuse.errors import CannotVerifyError, InputError
from normfuse.parity.light import LightModel, is_large, tensor_bytes
from normfuse.parity.settings import Array

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
}


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies of an If, Loop or Scan."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def names_read(node: onnx.NodeProto) -> set[str]:
    """The values that a node reads, those captured by its bodies included."""
    read = {name for name in node.input if name}
    for body in subgraphs(node):
        inside = {i.name for i in body.input} | {i.name for i in body.initializer}
        for child in body.node:
            read |= names_read(child) - inside
            inside |= set(child.output)
        read |= {o.name for o in body.output} - inside
    return read


def constant_of(node: onnx.NodeProto) -> TensorProto | None:
    """The tensor that a Constant node holds, where it is given as a tensor or as integers."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        tensor: TensorProto = attribute.t
        return tensor
    if attribute.name in ("value_int", "value_ints"):
        values = attribute.i if attribute.name == "value_int" else list(attribute.ints)
        return numpy_helper.from_array(np.array(values, np.int64))
    return None


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a graph and of the bodies inside it."""
    for node in graph.node:
        yield node
        for body in subgraphs(node):
            yield from every_node(body)


@dataclass(frozen=True, eq=False)
class Scope:
    """One graph: the main one, or the body of an If, Loop or Scan with the scopes around it."""

    graph: onnx.GraphProto
    outer: Scope | None = None

    @cached_property
    def position(self) -> dict[str, int]:
        """Index of the node that produces a value; nodes stand in topological order."""
        return {name: i for i, node in enumerate(self.graph.node) for name in node.output if name}

    @cached_property
    def initializers(self) -> dict[str, TensorProto]:
        """Constants by name, those of the scopes around included."""
        own = {tensor.name: tensor for tensor in self.graph.initializer}
        return {**self.outer.initializers, **own} if self.outer else own

    @cached_property
    def constant(self) -> set[str]:
        """Values that depend on no input: initializers, and nodes over nothing but constants."""
        known = set(self.initializers) | (self.outer.constant if self.outer else set())
        known -= {i.name for i in self.graph.input} - set(self.initializers)
        for node in self.graph.node:
            if node.op_type not in RANDOM and names_read(node) <= known:
                known.update(name for name in node.output if name)
        return known

    @cached_property
    def types(self) -> dict[str, onnx.TypeProto]:
        """Declared types of values, where the file has them."""
        values = (*self.graph.value_info, *self.graph.input, *self.graph.output)
        return {v.name: v.type for v in values if v.type.WhichOneof("value") == "tensor_type"}


@dataclass(frozen=True, eq=False)
class Model:
    """One ONNX file, its external data not loaded; edited: `proto` is no longer what the file holds."""

    path: Path
    proto: onnx.ModelProto
    edited: bool = False
    main: Scope = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "main", Scope(self.proto.graph))

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model file; weights in external files stay where they are."""
        try:
            return Model(path, onnx.load(path, load_external_data=False))
        except (OSError, DecodeError) as error:
            raise InputError(f"{path}: cannot be read as an ONNX model ({error})") from error

    @cached_property
    def inputs(self) -> dict[str, onnx.TypeProto]:
        """What a caller must feed: the graph inputs that have no default."""
        return {i.name: i.type for i in self.proto.graph.input if i.name not in self.main.initializers}

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""
        return tuple(o.name for o in self.proto.graph.output)

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """The main graph and every body inside it."""
        return tuple(_scopes(self.main))

    def scope_of(self, name: str) -> Scope | None:
        """The scope that produces a value."""
        return next((scope for scope in self.scopes if name in scope.position), None)

    @cached_property
    def light(self) -> LightModel:
        """The model without its weights, for variants of it that share them."""
        return LightModel.of(self.proto)

    def share_weights(self) -> None:
        """Take the weights out once, so that pieces of the model need no copies of theirs."""
        _ = self.light

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all initializers, wherever they lie."""
        return int(sum(map(tensor_bytes, self.main.initializers.values())))

    @cached_property
    def halves(self) -> frozenset[int]:
        """The half-precision types that it computes in: of its inputs and weights, and those it casts to."""
        kinds = {t.data_type for t in self.main.initializers.values()}
        kinds |= {kind.tensor_type.elem_type for kind in self.inputs.values()}
        for node in every_node(self.proto.graph):
            kinds |= {a.i for a in node.attribute if node.op_type == "Cast" and a.name == "to"}
        return frozenset(kinds & {TensorProto.FLOAT16, TensorProto.BFLOAT16})

    @cached_property
    def opsets(self) -> Mapping[str, int]:
        """Operator-set version of each domain."""
        return {o.domain: o.version for o in self.proto.opset_import}

    def constant(self, name: str) -> TensorProto | None:
        """The tensor of an initializer or a Constant node, in any scope; None for anything else."""
        for scope in self.scopes:
            if name in scope.initializers:
                return scope.initializers[name]
            if name in scope.position:
                return constant_of(scope.graph.node[scope.position[name]])
        return None

    def tensor(self, tensor: TensorProto) -> TensorProto:
        """The tensor with its data inside, read from the external file where it lies in one."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return tensor
        loaded = TensorProto()
        loaded.CopyFrom(tensor)
        del loaded.external_data[:]
        loaded.data_location = TensorProto.DEFAULT
        loaded.raw_data = self._external({e.key: e.value for e in tensor.external_data}, tensor.name)
        return loaded

    def array(self, tensor: TensorProto) -> Array:
        """The tensor's values."""
        return np.asarray(numpy_helper.to_array(self.tensor(tensor)))

    def place(self, tensor: TensorProto) -> tuple[Path, str, str] | None:
        """Where the data of a tensor lies, by file, offset and length; None where it is inside the model."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return None
        entry = {e.key: e.value for e in tensor.external_data}
        file = self._file(entry, tensor.name).resolve()
        return file, entry.get("offset", "0"), entry.get("length", "")

    def view(self, tensor: TensorProto) -> Array | None:
        """The values of a large tensor, those of an external file as a view of it; None for any other."""
        if not is_large(tensor):
            return None
        if tensor.data_location != TensorProto.EXTERNAL:
            beside = self.light.weights.get(tensor.name) if "light" in self.__dict__ else None
            if beside is not None and tensor is self.main.initializers.get(tensor.name):
                return beside
            return self.array(tensor) if tensor.HasField("raw_data") else None
        entry = {e.key: e.value for e in tensor.external_data}
        file, offset = self._file(entry, tensor.name), int(entry.get("offset", "0"))
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        try:
            return np.memmap(file, dtype, "r", offset, tuple(tensor.dims))
        except ValueError as error:
            raise InputError(f"{file}: ends before the data of {tensor.name!r}") from error
        except OSError as error:
            raise InputError(
                f"{file}: the data of {tensor.name!r} cannot be read ({error.strerror})"
            ) from error

    def _file(self, entry: Mapping[str, str], name: str) -> Path:
        location = PurePosixPath(entry.get("location", "").replace("\\", "/"))
        if location.is_absolute() or ".." in location.parts or not location.parts:
            raise InputError(
                f"{self.path}: the data of {name!r} lies outside the model's folder ({location})"
            )
        return self.path.parent / location

    def _external(self, entry: Mapping[str, str], name: str) -> bytes:
        file = self._file(entry, name)
        try:
            with open(file, "rb") as data:
                data.seek(int(entry.get("offset", "0")))
                content = data.read(int(entry["length"]) if "length" in entry else -1)
        except OSError as error:
            raise InputError(f"{file}: the data of {name!r} cannot be read ({error.strerror})") from error
        if "length" in entry and len(content) != int(entry["length"]):
            raise InputError(f"{file}: ends before the data of {name!r}")
        return content


def _scopes(scope: Scope) -> Iterator[Scope]:
    yield scope
    for node in scope.graph.node:
        for body in subgraphs(node):
            yield from _scopes(Scope(body, scope))


def serialize(proto: onnx.ModelProto) -> bytes:
    """The model as bytes; a clear error above protobuf's limit of 2 GB."""
    try:
        return bytes(proto.SerializeToString())
    except (ValueError, EncodeError) as error:
        raise CannotVerifyError(
            "the model holds more than 2 GB inside its file; save it with external data first"
        ) from error
