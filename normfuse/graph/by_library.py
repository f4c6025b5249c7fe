"""Shape inference by onnx-shape-inference as a whole, and by onnx's own where that gives up."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import onnx
import onnx_ir as ir
import onnx_shape_inference

from normfuse.graph.claims import named, overridable, static, symbols, unused_names
from normfuse.graph.known import Known
from normfuse.graph.scopes import graphs

_CONTENTS = onnx_shape_inference.SYM_DATA_KEY
_log = logging.getLogger(__name__)


def infer(model: ir.Model) -> dict[ir.Value, Known]:
    """What is known of every value of `model`, which is left as it was."""
    with _prepared(model, {}) as (values, names):
        try:
            onnx_shape_inference.infer_symbolic_shapes(
                model, warn_on_missing=False, adopt_declared_symbols=False
            )
        except (onnx_shape_inference.ShapeInferenceError, ArithmeticError, LookupError, TypeError,
                ValueError, AttributeError, RuntimeError) as error:  # fmt: skip
            _log.info("symbolic shape inference gave up (%s); using onnx's", error)
            _infer_with_onnx(model, values)
        return _collect(values, names)


def go_on(model: ir.Model, known: Mapping[ir.Value, Known]) -> dict[ir.Value, Known]:
    """The same, from what rules came to before one of them failed."""
    with _prepared(model, known) as (values, names):
        for value, facts in known.items():
            value.shape, value.type = facts.shape, facts.type
            if facts.integers is not None:
                value.metadata_props[_CONTENTS] = json.dumps(facts.integers)
        _infer_with_onnx(model, values)
        return _collect(values, names)


@contextmanager
def _prepared(
    model: ir.Model, known: Mapping[ir.Value, Known]
) -> Iterator[tuple[list[ir.Value], Iterator[str]]]:
    """All values of a model, without what is not believed of them, and names for dimensions.

    Afterwards the values are as they were.
    """
    values = list(_values(model))
    names = unused_names(symbols([*(v.shape for v in values), *(k.shape for k in known.values())]))
    saved = [(v, v.type, v.shape, v.const_value) for v in values]
    # What a file says of the contents of integer tensors is not believed.
    claimed = [(v, text) for v in values if (text := v.metadata_props.pop(_CONTENTS, None)) is not None]
    hidden = overridable(model)
    try:
        for value in hidden:
            value.const_value = None
        _prepare(values, names)
        yield values, names
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


def _values(model: ir.Model) -> Iterator[ir.Value]:
    seen: set[ir.Value] = set()
    for graph in graphs(model):
        inner = (out for node in graph for out in node.outputs)
        for value in itertools.chain(graph.inputs, graph.initializers.values(), inner):
            if value not in seen:
                seen.add(value)
                yield value


def _prepare(values: list[ir.Value], names: Iterator[str]) -> None:
    """Forget what files claim of inner values, and give each nameless dimension a name of its own."""
    for value in values:
        node = value.producer()
        if value.const_value is not None and node is None:
            value.shape, value.type = static(value.const_value), ir.TensorType(value.const_value.dtype)
        elif node is not None and node.domain == "":
            value.shape = None
        elif value.shape is not None:
            value.shape = named(value.shape, names)


def _collect(values: list[ir.Value], names: Iterator[str]) -> dict[ir.Value, Known]:
    return {v: Known(_told_apart(v.shape, names), v.type, _contents(v)) for v in values}


def _told_apart(shape: ir.Shape | None, names: Iterator[str]) -> ir.Shape | None:
    if shape is None or not shape.has_unknown_dim():
        return shape
    return ir.Shape([d if isinstance(d, int) or d.value is not None else next(names) for d in shape])


def _contents(value: ir.Value) -> tuple[int | ir.SymbolicDim, ...] | None:
    text = value.metadata_props.get(_CONTENTS)
    elements = None if text is None else json.loads(text)
    if not isinstance(elements, list) or not all(isinstance(e, int | str) for e in elements):
        return None
    return tuple(e if isinstance(e, int) else ir.SymbolicDim(e) for e in elements)


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
