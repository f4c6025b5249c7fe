"""Is it a sound ONNX graph? Names are defined once, before they are read, and nodes are what they may be.

Done on the message itself, before a graph is built from it: what fails here names the file and the node.
Linear in the size of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from normfuse.errors import InputError
from normfuse.model_io.schemas import InvalidNode, Operators, opset_versions
from normfuse.model_io.tensors import check_tensor, tensors_of_nodes

_GRAPH, _GRAPHS = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS
_HOLDING = (_GRAPH, _GRAPHS, onnx.AttributeProto.TENSOR, onnx.AttributeProto.TENSORS)


def validate(proto: onnx.ModelProto, where: str) -> None:
    """Raise `InputError`, naming file and node, unless the model is one that can be worked on."""
    if not proto.HasField("graph"):
        raise InputError(f"{where}: no graph in it, so it is not an ONNX model")
    domains = {opset.domain for opset in proto.opset_import}
    if not domains & {"", "ai.onnx"} and any(node.domain in ("", "ai.onnx") for node in proto.graph.node):
        raise InputError(f"{where}: the model does not say which version of the ONNX operators it uses")
    operators = Operators(opset_versions(proto.opset_import, where))
    _Scope(where, [], "the graph", operators).graph(proto.graph)
    for function in proto.functions:
        _function(function, where)
    _no_recursion(proto.functions, where)


def describe(node: onnx.NodeProto) -> str:
    """A node as messages name it: its name, or what it computes."""
    if node.name:
        return f"node {node.name!r} ({node.op_type})"
    return f"the unnamed {node.op_type} node that computes {next(iter(node.output), '')!r}"


class _Scope:
    """The names of one graph, on top of those of the graphs around it."""

    def __init__(self, where: str, outer: Sequence[set[str]], title: str, operators: Operators) -> None:
        self.where, self.title, self.operators = where, title, operators
        self.names: set[str] = set()
        self.outer = outer

    def graph(self, graph: onnx.GraphProto) -> None:
        inputs = [value.name for value in graph.input]
        self._define(inputs, "an input")
        self._initializers(graph, set(inputs))
        for tensor in graph.initializer:
            check_tensor(tensor, self.where)
        self._nodes(graph.node)
        for output in graph.output:
            if output.name not in self.names and not self._outside(output.name):
                raise InputError(f"{self.where}: no node computes the output {output.name!r} of {self.title}")

    def function(self, function: onnx.FunctionProto) -> None:
        self._define(function.input, "an input")
        self._nodes(function.node)
        for name in function.output:
            if name not in self.names:
                raise InputError(f"{self.where}: no node computes the output {name!r} of {self.title}")

    def _initializers(self, graph: onnx.GraphProto, inputs: set[str]) -> None:
        if graph.sparse_initializer and self.outer:
            raise InputError(
                f"{self.where}: {self.title} has sparse initializers, which are not supported there"
            )
        names = [tensor.name for tensor in graph.initializer]
        sparse = [tensor.values.name for tensor in graph.sparse_initializer]
        if len(set(names)) != len(names):
            raise InputError(f"{self.where}: {_repeated(names)!r} is defined twice, by two initializers")
        self._define((name for name in names + sparse if name not in inputs), "an initializer")
        for tensor in graph.sparse_initializer:
            if tensor.values.data_location == onnx.TensorProto.EXTERNAL:
                raise InputError(
                    f"{self.where}: sparse tensor {tensor.values.name!r} lies in an external file"
                )

    def _define(self, names: Iterable[str], by: str) -> None:
        for name in names:
            self._text(name, by)
            if not name:
                raise InputError(f"{self.where}: {by} of {self.title} has no name")
            if name in self.names:
                raise InputError(f"{self.where}: {name!r} is defined twice in {self.title}, once as {by}")
            self.names.add(name)

    def _nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        names = self.names
        for node in nodes:  # each field is asked for once: the message makes it anew every time
            inputs, outputs = node.input[:], node.output[:]
            given = tuple([(attribute.name, attribute.type) for attribute in node.attribute])
            self._texts([node.op_type, node.domain, node.name, *outputs])
            try:
                self.operators.check(node, inputs, outputs, given)
            except InvalidNode as error:
                raise InputError(f"{self.where}: {describe(node)} {error}") from None
            for name in inputs:
                if name not in names and name and not self._outside(name):
                    raise self._undefined(node, name, nodes)
            if given and any(kind in _HOLDING for _, kind in given):
                self._held(node)
            for name in outputs:
                if name in names:
                    raise InputError(
                        f"{self.where}: {name!r} is defined twice, the second time by {describe(node)}"
                    )
                if name:
                    names.add(name)

    def _held(self, node: onnx.NodeProto) -> None:
        """The tensors and the graphs in the attributes of a node."""
        for tensor in tensors_of_nodes([node]):
            check_tensor(tensor, self.where)
        for attribute in node.attribute:
            for graph in _graphs(attribute):
                title = f"the {attribute.name} of {describe(node)}"
                _Scope(self.where, [*self.outer, self.names], title, self.operators).graph(graph)

    def _texts(self, names: list[str]) -> None:
        """All names of a node at once: joining them fails where one is no text, and costs next to nothing."""
        try:
            "".join(names)
        except TypeError:
            for name in names:
                self._text(name, "a node")

    def _text(self, name: object, of: str) -> None:
        if not isinstance(name, str):  # protobuf hands out bytes where they are no UTF-8
            raise InputError(f"{self.where}: damaged, a name of {of} of {self.title} is not text: {name!r}")

    def _outside(self, name: str) -> bool:
        return any(name in names for names in self.outer)

    def _undefined(self, node: onnx.NodeProto, name: str, nodes: Sequence[onnx.NodeProto]) -> InputError:
        reader = f"{self.where}: {describe(node)} reads {name!r}, which"
        producer = next((other for other in nodes if name in other.output), None)
        if producer is None:
            return InputError(f"{reader} nothing defines")
        if _reaches(node, producer, nodes):
            return InputError(f"{reader} depends on its own result: the graph has a cycle")
        return InputError(
            f"{reader} is only computed later, by {describe(producer)}: the graph is not sorted",
            hint="onnx_ir.passes.common.TopologicalSortPass sorts it",
        )


def _graphs(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    if attribute.type == _GRAPH:
        return [attribute.g]
    return attribute.graphs if attribute.type == _GRAPHS else ()


def _reaches(node: onnx.NodeProto, target: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> bool:
    """Whether `target` depends on a result of `node` (only asked once a graph is known to be unsound)."""
    producers = {name: other for other in nodes for name in other.output if name}
    goal, seen, pending = set(node.output), set(), list(target.input)
    while pending:
        name = pending.pop()
        if name in goal:
            return True
        if name not in seen and name in producers:
            seen.add(name)
            pending.extend(producers[name].input)
    return False


def _repeated(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _function(function: onnx.FunctionProto, where: str) -> None:
    operators = Operators(opset_versions(function.opset_import, where))
    _Scope(where, [], f"the function {function.domain}.{function.name}", operators).function(function)


def _no_recursion(functions: Sequence[onnx.FunctionProto], where: str) -> None:
    """A function that calls itself can be neither inlined nor run."""
    calls = {
        (f.domain, f.name, f.overload): {(n.domain, n.op_type, n.overload) for n in _all_nodes(f.node)}
        for f in functions
    }
    remaining = {key: {callee for callee in callees if callee in calls} for key, callees in calls.items()}
    while remaining:
        ready = {key for key, callees in remaining.items() if not callees & remaining.keys()}
        if not ready:
            domain, name, _ = min(remaining)
            raise InputError(f"{where}: the function {domain}.{name} calls itself")
        remaining = {key: callees for key, callees in remaining.items() if key not in ready}


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in _graphs(attribute):
                yield from _all_nodes(graph.node)
