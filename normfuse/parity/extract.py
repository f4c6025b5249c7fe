"""Cuts one rewrite out of a model: the nodes between the values it reads and the value it writes.

    model    ... -> x -> [ReduceMean Sub Pow ... Add] -> y -> ...        shape chain -> s
    piece    inputs x (and s), constants inside, one output y

What depends on the read values belongs to the piece; what does not is a constant (taken along) or a
value computed beside it (an input of the piece, recorded from the model's own run).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from normfuse.parity.light import LightModel, add_initializers, tensor_bytes
from normfuse.parity.model import Model, Scope, names_read, subgraphs
from normfuse.parity.settings import Array, Boundary


class CannotExtractError(Exception):
    """The piece cannot be cut out; the text says why, for the verdict's detail."""


@dataclass(frozen=True, eq=False)
class Piece:
    """The nodes of one side of a rewrite.

    reads: the values that the rewrite reads; beside: other run-time values that its nodes need.
    """

    model: Model
    nodes: tuple[onnx.NodeProto, ...]
    initializers: tuple[TensorProto, ...]
    reads: tuple[str, ...]
    beside: tuple[str, ...]
    output: str
    nested: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        """All that must be fed."""
        return (*self.reads, *self.beside)

    @property
    def weight_bytes(self) -> int:
        """Bytes of its constants."""
        return int(sum(map(tensor_bytes, self.initializers)))

    def proto(self, feed: Mapping[str, Array]) -> onnx.ModelProto:
        """The piece as a model of its own, with all its weights inside."""
        return self.light(feed).whole()

    def light(self, feed: Mapping[str, Array]) -> LightModel:
        """The piece as a model of its own, for inputs of the types and ranks of `feed`; weights beside it."""
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(feed[name].dtype), [None] * feed[name].ndim
            )
            for name in self.inputs
        ]
        source = self.model.proto
        graph = helper.make_graph(
            list(self.nodes),
            "piece",
            inputs,
            [onnx.ValueInfoProto(name=self.output)],
        )
        proto = helper.make_model(
            graph, opset_imports=list(source.opset_import), functions=list(source.functions)
        )
        # Below IR 4 an initializer would have to be listed as an input as well.
        proto.ir_version = max(source.ir_version, 4)
        views = {tensor.name: self.model.view(tensor) for tensor in self.initializers}
        beside = {name: values for name, values in views.items() if values is not None}
        inside = (t if t.name in beside else self.model.tensor(t) for t in self.initializers)
        add_initializers(proto.graph, inside, beside)
        return LightModel(proto, beside)


def extract(model: Model, boundary: Boundary) -> Piece:
    """The piece between the values that a rewrite reads and the value that it writes."""
    scope = model.scope_of(boundary.output)
    if scope is None:
        raise CannotExtractError(f"{boundary.output!r} is not produced by a node of {model.path.name}")
    for name in boundary.reads:
        if not _is_known(scope, name):
            raise CannotExtractError(f"{name!r} is not a value of {model.path.name}")
    inside, outside = _walk(scope, boundary)
    reads = tuple(name for name in boundary.reads if name in outside)
    if not reads:
        raise CannotExtractError(f"{boundary.output!r} does not depend on {', '.join(boundary.reads)}")
    constants, initializers = _constants(scope, outside)
    nodes = _ordered(scope, inside, constants)
    beside = tuple(sorted(name for name in outside if name not in reads and name not in scope.constant))
    return Piece(model, nodes, initializers, reads, beside, boundary.output, scope.outer is not None)


def extract_constant(model: Model, name: str) -> Piece:
    """What a value is computed from that depends on no input; nothing has to be fed."""
    scope = model.scope_of(name)
    if scope is None or name not in scope.constant:
        raise CannotExtractError(f"{name!r} is not computed from constants in {model.path.name}")
    nodes, initializers = _constants(scope, [name])
    return Piece(model, tuple(nodes), initializers, (), (), name, scope.outer is not None)


def stored(model: Model, constant: str, name: str) -> Piece:
    """A constant as a piece, that gives it under another name."""
    tensor = model.constant(constant)
    if tensor is None:
        raise CannotExtractError(f"{constant!r} is no constant of {model.path.name}")
    held = TensorProto()
    held.CopyFrom(tensor)
    held.name = constant
    return Piece(model, (helper.make_node("Identity", [constant], [name]),), (held,), (), (), name, False)


def _is_known(scope: Scope | None, name: str) -> bool:
    while scope is not None:
        if (
            name in scope.position
            or name in scope.initializers
            or name in {i.name for i in scope.graph.input}
        ):
            return True
        scope = scope.outer
    return False


def _walk(scope: Scope, boundary: Boundary) -> tuple[set[int], set[str]]:
    """Indices of the nodes that depend on what is read, and all values that these nodes take from outside.

    A node that stands before everything that is read cannot depend on it: that bounds the walk.
    """
    reads = set(boundary.reads)
    first = min(scope.position.get(name, -1) for name in reads)
    depends: dict[str, bool] = {}
    stack = [boundary.output]
    while stack:
        name = stack[-1]
        index = scope.position.get(name, -1)
        if name in depends:
            stack.pop()
        elif name in reads:
            depends[name] = True
        elif index <= first or name in scope.constant:
            depends[name] = False
        else:
            below = names_read(scope.graph.node[index])
            todo = [n for n in below if n not in depends]
            if todo:
                stack.extend(todo)
            else:
                depends[name] = any(depends[n] for n in below)
    return _between(scope, boundary.output, depends, reads)


def _between(
    scope: Scope, output: str, depends: Mapping[str, bool], reads: set[str]
) -> tuple[set[int], set[str]]:
    inside: set[int] = set()
    outside: set[str] = set()
    stack = [output] if depends[output] else []
    while stack:
        name = stack.pop()
        if name in reads or not depends[name]:
            outside.add(name)
        elif scope.position[name] not in inside:
            inside.add(scope.position[name])
            stack.extend(names_read(scope.graph.node[scope.position[name]]))
    return inside, outside


def _constants(scope: Scope, names: Iterable[str]) -> tuple[list[onnx.NodeProto], tuple[TensorProto, ...]]:
    """The nodes and initializers that constant values are computed from, those of outer scopes included."""
    nodes: dict[str, tuple[int, int, onnx.NodeProto]] = {}
    tensors: dict[str, TensorProto] = {}
    stack = [name for name in names if name in scope.constant]
    seen: set[str] = set()
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in scope.initializers and name not in scope.position:
            tensors[name] = scope.initializers[name]
            continue
        home, depth = _home(scope, name)
        index = home.position[name]
        nodes[name] = (-depth, index, home.graph.node[index])
        stack.extend(names_read(home.graph.node[index]))
    ordered = sorted({(d, i): n for d, i, n in nodes.values()}.items(), key=lambda item: item[0])
    return [node for _, node in ordered], tuple(tensors.values())


def _home(scope: Scope, name: str) -> tuple[Scope, int]:
    depth, at = 0, scope
    while name not in at.position and at.outer is not None:
        at, depth = at.outer, depth + 1
    return at, depth


def _ordered(scope: Scope, inside: set[int], constants: list[onnx.NodeProto]) -> tuple[onnx.NodeProto, ...]:
    """Constants first, then the nodes in the model's own order."""
    return (*constants, *(scope.graph.node[i] for i in sorted(inside)))


def operators(piece: Piece) -> set[str]:
    """Operator types of a piece, bodies included."""
    found: set[str] = set()
    stack = list(piece.nodes)
    while stack:
        node = stack.pop()
        found.add(node.op_type)
        for body in subgraphs(node):
            stack.extend(body.node)
    return found
