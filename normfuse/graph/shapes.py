"""Shapes of every value, static or symbolic, and what small integer tensors hold.

A dimension is an `int` or a symbol (`str`, perhaps an expression such as "2*S + 1"). Two equal symbols are
provably the same number; two different ones prove nothing. Dimensions without a name, or with a placeholder
such as "?" or "-1" that exporters write for every unknown, each become a symbol of their own, so an unknown
never equals another.

Shapes of inner values are inferred afresh: what a file claims of them is only used for operators that the
inference does not know. The model itself is left as it was found.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir
import onnx_shape_inference

from normfuse.graph import inference_rules
from normfuse.graph.scopes import graphs

Dim = int | str
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTENTS = onnx_shape_inference.SYM_DATA_KEY
_log = logging.getLogger(__name__)


class Shapes:
    """The inferred facts about one model's values.

    of(value): dimensions, or None when not even the rank is known.
    dtype(value): element type, or None.
    integers(value): what a small integer tensor holds, each element an int or a symbol, flattened.
    """

    def __init__(self) -> None:
        self._shapes: dict[ir.Value, tuple[Dim, ...]] = {}
        self._dtypes: dict[ir.Value, ir.DataType] = {}
        self._integers: dict[ir.Value, tuple[Dim, ...]] = {}

    def of(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The dimensions of `value`."""
        return None if value is None else self._shapes.get(value)

    def rank(self, value: ir.Value | None) -> int | None:
        """The number of dimensions of `value`."""
        shape = self.of(value)
        return None if shape is None else len(shape)

    def dtype(self, value: ir.Value | None) -> ir.DataType | None:
        """The element type of `value`."""
        return None if value is None else self._dtypes.get(value, value.dtype)

    def integers(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The elements of a small integer tensor that shape arithmetic computes."""
        return None if value is None else self._integers.get(value)

    def set(self, value: ir.Value, shape: Iterable[Dim], dtype: ir.DataType | None) -> None:
        """State the facts of a value that a rewrite has made."""
        self._shapes[value] = tuple(shape)
        if dtype is not None:
            self._dtypes[value] = dtype

    def same_as(self, new: ir.Value, old: ir.Value) -> None:
        """Let `new`, which replaces `old`, have its facts."""
        for table in (self._shapes, self._dtypes, self._integers):
            if old in table:
                table[new] = table[old]  # type: ignore[assignment]


def infer(model: ir.Model) -> Shapes:
    """Infer the shapes of all values of `model`, its subgraphs included, without changing it."""
    inference_rules.register()
    values = list(_values(model))
    saved = [(v, v.type, v.shape, v.const_value) for v in values]
    # What a file says of the contents of integer tensors is not believed.
    claimed = [(v, text) for v in values if (text := v.metadata_props.pop(_CONTENTS, None)) is not None]
    overridable = _overridable(model)
    try:
        _prepare(values)
        for value in overridable:  # what a caller may override is not known
            value.const_value = None
        try:
            onnx_shape_inference.infer_symbolic_shapes(
                model, warn_on_missing=False, adopt_declared_symbols=False
            )
        except (onnx_shape_inference.ShapeInferenceError, ArithmeticError, LookupError, TypeError,
                ValueError, AttributeError, RuntimeError) as error:  # fmt: skip
            _log.info("symbolic shape inference gave up (%s); using onnx's", error)
            _infer_with_onnx(model, values)
        return _collect(values)
    finally:
        _restore(saved)
        for value, text in claimed:
            value.metadata_props[_CONTENTS] = text


def _restore(saved: Iterable[tuple[ir.Value, ir.TypeProtocol | None, ir.Shape | None,
                                   ir.TensorProtocol | None]]) -> None:  # fmt: skip
    for value, type_, shape, constant in saved:
        value.type, value.shape = type_, shape
        if value.const_value is not constant:
            value.const_value = constant
        value.metadata_props.pop(_CONTENTS, None)


def _overridable(model: ir.Model) -> list[ir.Value]:
    if model.ir_version is not None and model.ir_version < 4:
        return []
    return [v for v in model.graph.inputs if v.is_initializer()]


def _values(model: ir.Model) -> Iterator[ir.Value]:
    seen: set[ir.Value] = set()
    for graph in graphs(model):
        inner = (out for node in graph for out in node.outputs)
        for value in itertools.chain(graph.inputs, graph.initializers.values(), inner):
            if value not in seen:
                seen.add(value)
                yield value


def _prepare(values: list[ir.Value]) -> None:
    """Forget what files claim of inner values, and give each nameless dimension a name of its own."""
    fresh = itertools.count()
    taken = {str(d) for v in values if v.shape is not None for d in v.shape}
    names = (name for k in fresh if (name := f"unknown_{k}") not in taken)
    for value in values:
        node = value.producer()
        if value.const_value is not None and node is None:
            value.shape, value.dtype = _static(value.const_value), value.const_value.dtype
        elif node is not None and node.domain == "":
            value.shape = None
        elif value.shape is not None:
            value.shape = ir.Shape([_named(d, names) for d in value.shape])


def _static(tensor: ir.TensorProtocol) -> ir.Shape:
    return ir.Shape([int(d) if isinstance(d, int) else d.value for d in tensor.shape])


def _named(dim: int | ir.SymbolicDim, names: Iterator[str]) -> int | str:
    if isinstance(dim, int):
        return dim if dim >= 0 else next(names)
    return dim.value if dim.value is not None and _IDENTIFIER.fullmatch(dim.value) else next(names)


def _collect(values: list[ir.Value]) -> Shapes:
    shapes = Shapes()
    anonymous = itertools.count()
    for value in values:
        if value.shape is not None:
            dims = (d if isinstance(d, int) else d.value for d in value.shape)
            named = (f"anonymous_{next(anonymous)}" if d is None else _plain(d) for d in dims)
            shapes.set(value, named, value.dtype)
        elif value.dtype is not None:
            shapes._dtypes[value] = value.dtype
        known = value.metadata_props.get(_CONTENTS)
        if known is not None:
            elements = json.loads(known)
            if isinstance(elements, list) and all(isinstance(e, int | str) for e in elements):
                shapes._integers[value] = tuple(_plain(e) for e in elements)
    return shapes


def _plain(dim: Dim) -> Dim:
    """A symbolic expression that turned out to be a number, as that number."""
    return int(dim) if isinstance(dim, str) and dim.isdecimal() else dim


def _infer_with_onnx(model: ir.Model, values: list[ir.Value]) -> None:
    """The C++ inference: weaker with symbols, but it swallows what it does not understand."""
    from onnx_ir.passes.common import _c_api_utils

    try:
        proto = _c_api_utils.call_onnx_api(
            lambda m: onnx.shape_inference.infer_shapes(m, data_prop=True), model
        )
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        _log.info("onnx's shape inference gave up as well: %s", error)
        return
    found = {info.name: info for info in proto.graph.value_info}
    for value in values:
        info = found.get(value.name or "")
        if info is not None and info.type.tensor_type.HasField("shape"):
            typed = ir.serde.deserialize_value_info_proto(info, None)
            value.shape, value.type = typed.shape, typed.type
