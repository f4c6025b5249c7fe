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
from normfuse.parity.settings import Array

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
# Weights of at least so many bytes are shared between the variants of a model.
LARGE = 4096
# Types that numpy and the runtime hold alike.
SHARED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT8, TensorProto.UINT8,
          TensorProto.INT32, TensorProto.INT64)  # fmt: skip
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

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all initializers, wherever they lie."""
        sizes = (np.prod(t.dims, dtype=np.int64) * _item_bytes(t) for t in self.main.initializers.values())
        return int(sum(sizes))

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

    def _external(self, entry: Mapping[str, str], name: str) -> bytes:
        location = PurePosixPath(entry.get("location", "").replace("\\", "/"))
        if location.is_absolute() or ".." in location.parts or not location.parts:
            raise InputError(
                f"{self.path}: the data of {name!r} lies outside the model's folder ({location})"
            )
        file = self.path.parent / location
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


@dataclass(frozen=True, eq=False)
class LightModel:
    """A model whose larger weights stand beside it, so that variants of it need not copy them.

    weights: those taken out, by name; in `proto` they are marked as external data.
    """

    proto: onnx.ModelProto
    weights: Mapping[str, Array]

    @staticmethod
    def of(proto: onnx.ModelProto) -> LightModel:
        """Take the weights out; what lies in an external file already is left there."""
        light = onnx.ModelProto()
        light.CopyFrom(proto)
        weights: dict[str, Array] = {}
        for tensor in light.graph.initializer:
            external = tensor.data_location == TensorProto.EXTERNAL
            if external or len(tensor.raw_data) < LARGE or tensor.data_type not in SHARED:
                continue
            weights[tensor.name] = np.ascontiguousarray(numpy_helper.to_array(tensor))
            entries = {"location": "beside", "offset": "0", "length": str(len(tensor.raw_data))}
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
        return LightModel(light, weights)

    def copy(self) -> onnx.ModelProto:
        """A copy to change, without the weights."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        return proto


def _item_bytes(tensor: TensorProto) -> float:
    kind = tensor.data_type
    return 8 if kind == TensorProto.STRING else onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize


def serialize(proto: onnx.ModelProto) -> bytes:
    """The model as bytes; a clear error above protobuf's limit of 2 GB."""
    try:
        return bytes(proto.SerializeToString())
    except (ValueError, EncodeError) as error:
        raise CannotVerifyError(
            "the model holds more than 2 GB inside its file; save it with external data first"
        ) from error
