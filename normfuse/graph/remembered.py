"""Shape inference that asks each rule once: models repeat themselves, layer after layer.

    Add(x[B, S, 64], bias[64])      asked: [B, S, 64]
    Add(y[B, S, 64], other[64])     the same operator of the same shapes: the same

Graphs are walked as onnx-shape-inference walks them, with the same rules in the same order, and the outcome
is the same. A result with a dimension that the rule had to name is not remembered: at the next such node it
has another name.

Models with Scan, or with operators of which only function bodies tell something, are left to the library.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY, ShapeInferenceContext, registry

from normfuse.graph.claims import named, overridable, symbols, unused_names
from normfuse.graph.known import Known
from normfuse.graph.repeatable import REPEATABLE, constant, settings
from normfuse.graph.scopes import bodies

_Dim = int | ir.SymbolicDim
_Rule = Callable[[ShapeInferenceContext, ir.Node], None]
_Key = tuple[Any, ...]
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})  # the rule of MatMul trusts what they make less
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """What is known of values: of all of them, unless a rule has failed half way."""

    known: Mapping[ir.Value, Known]
    failed: bool = False


def infer(model: ir.Model, scopes: Sequence[ir.Graph]) -> Found | None:
    """What is known of the values of `model`, which is left as it was; None where the library must be asked.

    scopes: all graphs of the model.
    """
    inference = _Inference(model, scopes)
    try:
        inference.walk(model.graph)
    except _RuleError as failure:
        _log.info("symbolic shape inference gave up: %r", failure.__cause__)
        return Found(inference.known(), failed=True)
    except Exception as error:  # whatever is out of the ordinary: the library says what follows
        _log.info("rules cannot be asked node by node: %r", error)
        return None
    finally:
        inference.restore()
    return Found(inference.known())


class _RuleError(Exception):
    """A rule has tripped over its node."""


class _UnsuitableError(Exception):
    """A node of which the library has to say more than a rule."""


class _Context(ShapeInferenceContext):  # type: ignore[misc]
    """What rules are given; it notes what they do besides setting shapes and types.

    fresh: how many dimensions were given names of their own. contents: what values were found to hold.
    """

    def __init__(self, opset_imports: Mapping[str, int]) -> None:
        super().__init__(opset_imports, policy="refine")
        self.fresh = 0
        self.contents: dict[ir.Value, tuple[_Dim, ...]] = {}

    def new_symbolic_dim(self) -> ir.SymbolicDim:
        """A dimension with a name that nothing else has."""
        self.fresh += 1
        dim: ir.SymbolicDim = super().new_symbolic_dim()
        return dim

    def set_symbolic_value(self, value: ir.Value, data: Sequence[_Dim]) -> None:
        """State what an integer tensor holds."""
        self.contents[value] = tuple(data)
        super().set_symbolic_value(value, list(data))


class _Inference:
    """One walk over a model.

    Values carry what is known of them only once a rule is asked about them; `restore` undoes that.
    """

    def __init__(self, model: ir.Model, scopes: Sequence[ir.Graph]) -> None:
        claimed = symbols(_believed(model, scopes))
        self._names = unused_names(claimed)
        self._context = _Context(model.opset_imports)
        self._context.reserve_symbol_names(claimed)
        self._functions = model.functions
        self._overridable = frozenset(overridable(model))
        self._rules: dict[tuple[str, str], _Rule | None] = {}
        self._memory: dict[_Key | None, list[Known]] = {}
        self._shared: dict[_Key, Known] = {}
        self._known: dict[ir.Value | None, Known] = {None: Known(None, None)}
        self._saved: dict[ir.Value, tuple[Any, ...]] = {}

    def known(self) -> dict[ir.Value, Known]:
        """What the walk came to."""
        return {value: known for value, known in self._known.items() if value is not None}

    def restore(self) -> None:
        """Take everything off the values again."""
        for value, (type_, shape, tensor, contents) in self._saved.items():
            value.type, value.shape, value.const_value = type_, shape, tensor
            value.metadata_props.pop(SYM_DATA_KEY, None)
            if contents is not None:
                value.metadata_props[SYM_DATA_KEY] = contents

    def walk(self, graph: ir.Graph) -> None:
        """Infer what is known of all values of a graph, in the order of its nodes."""
        known, memory = self._known, self._memory
        for value in (*graph.inputs, *graph.initializers.values()):
            if value not in known:
                known[value] = self._given(value)
        for node in graph:
            key = self._key(node)
            results = memory.get(key) or self._ask(node, key)
            for value, result in zip(node.outputs, results, strict=True):
                known[value] = result

    def _key(self, node: ir.Node) -> _Key | None:
        """All that the results of a node follow from; None where they may follow from more."""
        op_type = node.op_type
        if op_type not in REPEATABLE or node.domain:
            return None
        attributes = node.attributes.data
        set_to = settings(attributes) if attributes else ()
        if set_to is None:
            return None
        declared = tuple([value.dtype for value in node.outputs])  # a declared type is not overruled
        return (op_type, set_to, declared, *map(self._known.__getitem__, node.inputs))

    def _ask(self, node: ir.Node, key: _Key | None) -> list[Known]:
        """What the rule of a node comes to; remembered where that follows from the key."""
        rule = self._rule(node)
        results_of_bodies = [value for body in bodies(node) for value in self._enter(node, body)]
        for value in (*node.inputs, *results_of_bodies):
            if value is not None:
                self._show(value)
        for value in node.outputs:
            self._save(value)
            claimed = value.shape if node.domain else None
            value.shape = None if claimed is None else named(claimed, self._names)
            value.const_value = _tensor(node)
        before = self._context.fresh
        try:
            if rule is not None:
                rule(self._context, node)
        except Exception as error:
            self._known.update((value, self._found(node, value)) for value in node.outputs)
            raise _RuleError from error
        results = [self._found(node, value) for value in node.outputs]
        if key is not None and self._context.fresh == before:
            self._memory[key] = results
        return results

    def _rule(self, node: ir.Node) -> _Rule | None:
        operator = (node.domain, node.op_type)
        if operator not in self._rules:
            if node.domain and node.domain not in self._context.opset_imports:
                raise _UnsuitableError(node)
            version = self._context.get_opset_version(node.domain)
            self._rules[operator] = registry.get(*operator, version=version)
            if self._rules[operator] is None and _has_function(node, version):
                raise _UnsuitableError(node)
        rule = self._rules[operator]
        if rule is None and (*operator, node.overload) in self._functions:
            raise _UnsuitableError(node)
        return rule

    def _enter(self, node: ir.Node, body: ir.Graph) -> Iterable[ir.Value]:
        """Walk over the body of an If or a Loop; returns its outputs."""
        if node.domain or node.op_type not in ("If", "Loop"):
            raise _UnsuitableError(node)
        if node.op_type == "Loop":
            for carried, initial in zip(body.inputs[2:], node.inputs[2:], strict=False):
                self._known[carried] = self._carried(self._given(carried), self._known[initial])
        self.walk(body)
        return body.outputs

    def _carried(self, claimed: Known, initial: Known) -> Known:
        """What is known of a value that a loop carries on: what its body does not say is as at the start."""
        if claimed.shape is not None and claimed.dtype is not None:
            return claimed
        shape = initial.shape if claimed.shape is None else claimed.shape
        dense = None if initial.dtype is None else ir.TensorType(initial.dtype)
        return self._of(shape, dense if claimed.dtype is None else claimed.type)

    def _show(self, value: ir.Value) -> None:
        """Let rules see what is known of a value."""
        if value in self._saved:
            return
        self._save(value)
        known = self._known[value]
        value.type, value.shape = known.type, known.shape
        node = value.producer()
        if node is not None:
            value.const_value = _tensor(node)
        elif value in self._overridable:
            value.const_value = None
        if known.contents is not None:
            self._context.set_symbolic_value(value, known.contents)

    def _save(self, value: ir.Value) -> None:
        contents = value.metadata_props.get(SYM_DATA_KEY)
        self._saved[value] = value.type, value.shape, value.const_value, contents

    def _given(self, value: ir.Value) -> Known:
        """What is known of an input or an initializer."""
        tensor = value.const_value
        if tensor is not None and value not in self._overridable:
            return self._share(*constant(tensor))
        return self._of(None if value.shape is None else named(value.shape, self._names), value.type)

    def _found(self, node: ir.Node, value: ir.Value) -> Known:
        """What is known of a result, once the rule has been asked."""
        self._context.name_anonymous_dims(value)
        return self._of(value.shape, value.type, _besides(node), self._context.contents.get(value))

    def _of(
        self,
        shape: ir.Shape | None,
        type_: ir.TypeProtocol | None,
        besides: Hashable | None = None,
        contents: tuple[_Dim, ...] | None = None,
    ) -> Known:
        if not _is_dense(type_):
            return Known(shape, type_, contents)
        dtype = None if type_ is None else type_.dtype
        return self._share(None if shape is None else shape.dims, dtype, besides, contents)

    def _share(
        self,
        dims: tuple[_Dim, ...] | None,
        dtype: ir.DataType | None,
        besides: Hashable | None = None,
        contents: tuple[_Dim, ...] | None = None,
    ) -> Known:
        """The one object for all of this; `besides` is what else a rule may find out about such a value."""
        key = (dims, dtype, besides, contents)
        known = self._shared.get(key)
        if known is None:
            shape = None if dims is None else ir.Shape(dims, frozen=True)
            known = Known(shape, None if dtype is None else ir.TensorType(dtype), contents)
            self._shared[key] = known
        return known


def _believed(model: ir.Model, scopes: Sequence[ir.Graph]) -> Iterator[ir.Shape | None]:
    """The shapes that a file claims and that are believed."""
    for graph in scopes:
        yield from (value.shape for value in graph.inputs)
    if any(model.opset_imports):  # of the domains of other operators
        for node in itertools.chain.from_iterable(scopes):
            if node.domain:
                yield from (value.shape for value in node.outputs)


def _besides(node: ir.Node) -> Hashable | None:
    """What a rule may find out about the results of a node besides shape, type and contents."""
    if node.op_type == "Constant":
        return settings(node.attributes.data) or object()
    return object() if node.op_type in _CONTROL_FLOW else None


def _tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node, for rules not to ask the node for it: that would change its name."""
    if node.op_type != "Constant" or node.domain:
        return None
    value = node.attributes.data.get("value")
    return None if value is None or value.is_ref() else value.as_tensor()


def _is_dense(type_: ir.TypeProtocol | None) -> bool:
    """Whether this is the type of a dense tensor, or none."""
    return type_ is None or type(type_) is ir.TensorType


def _has_function(node: ir.Node, version: int) -> bool:
    """Whether ONNX defines the operator by a body, from which the library infers."""
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, max_inclusive_version=version, domain=node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
