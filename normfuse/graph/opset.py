"""Raising the version of the default operator set that a model imports.

The conversion itself is onnxscript's from opset 18 on, and onnx's below. What they lose or get wrong is
mended or refused here: node metadata is put back, and a conversion that did not reach the version, or that
inserted nodes where that is not wanted, is not taken.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator

import onnx_ir as ir

_RESIZE_OPSET = 11
# From here on onnxscript converts by itself. Below it would only call onnx's converter, and loading it takes
# as long as rewriting a small model.
_ONNXSCRIPTS_FIRST = 18
_CONVERTER_LOGS = ("onnxscript", "onnx_ir", "onnx")


def raised(model: ir.Model, version: int, *, allow_insertions: bool) -> ir.Model | None:
    """A copy of `model` at a higher opset, or None when it cannot be raised faithfully.

    allow_insertions: whether the result may hold operators (other than constants) that the model did not.
    """
    from onnx.version_converter import ConvertError

    if model.functions:
        return None  # the converter would inline them, and the model would lose their names
    copy = model.clone()
    current = int(model.opset_imports.get("", _ONNXSCRIPTS_FIRST))
    convert = _by_onnx if current < _ONNXSCRIPTS_FIRST else _by_onnxscript
    try:
        with _quiet():
            convert(copy, version)
    except (ConvertError, ir.passes.PassError, RuntimeError, ValueError, TypeError) as error:
        logging.getLogger(__name__).info("the opset stays at %s: %s", model.opset_imports.get(""), error)
        return None
    if copy.opset_imports.get("") != version:
        return None
    if not allow_insertions and _operators(copy) != _operators(model):
        return None
    if _interface(copy) != _interface(model) or not _sample_as_before(copy, model):
        return None
    _restore_interface(copy, model)
    _restore_metadata(copy, model)
    return copy


def _by_onnxscript(model: ir.Model, version: int) -> None:
    from onnxscript import version_converter

    version_converter.convert_version(model, target_version=version, fallback=True)


def _by_onnx(model: ir.Model, version: int) -> None:
    """Convert with onnx's converter, which is told of large initializers no more than their types."""
    from onnx import version_converter
    from onnx_ir.passes import common
    from onnx_ir.passes.common import _c_api_utils

    common.RemoveUnusedOpsetsPass()(model)
    try:
        proto = _c_api_utils.call_onnx_api(lambda p: version_converter.convert_version(p, version), model)
    except Exception as error:  # its parts in C++ have errors of their own, without a base in common
        raise RuntimeError(str(error)) from error
    converted = ir.from_proto(proto).graph
    for value in converted.inputs:
        weight = model.graph.initializers.get(value.name or "")
        if weight is not None:
            value.const_value = weight.const_value
            converted.register_initializer(value)
    # and not `del`, after which each would still take itself for an input
    converted.inputs[len(model.graph.inputs) :] = []
    model.graph = converted
    for clean in (common.RemoveUnusedNodesPass, common.RemoveUnusedOpsetsPass):
        clean()(model)


def _operators(model: ir.Model) -> Counter[tuple[str, str]]:
    """How often each operator occurs, constants aside: axes that become an input need one."""
    nodes = (n for n in ir.traversal.RecursiveGraphIterator(model.graph) if n.op_type != "Constant")
    return Counter((n.domain, n.op_type) for n in nodes)


def _sample_as_before(copy: ir.Model, model: ir.Model) -> bool:
    """Whether every Resize still reads the pixels that it read; states it where the default has changed.

    Up to opset 10, Resize and Upsample sample at output / scale, rounded down; from 11 on the default takes
    the middles of pixels. onnxruntime rounds up where an old one makes the image smaller: no mode says that.
    """
    if int(model.opset_imports.get("", 1)) >= _RESIZE_OPSET:
        return True
    known = {n.outputs[0].name: n for n in ir.traversal.RecursiveGraphIterator(copy.graph) if n.outputs}
    for old in ir.traversal.RecursiveGraphIterator(model.graph):
        if old.op_type not in ("Resize", "Upsample") or old.domain != "":
            continue
        new = known.get(old.outputs[0].name)
        is_nearest = old.attributes.get_string("mode", "nearest") == "nearest"
        if new is None or new.op_type != "Resize" or (is_nearest and not _enlarges(old)):
            return False
        new.attributes.add(ir.AttrString("coordinate_transformation_mode", "asymmetric"))
        if is_nearest:
            new.attributes.add(ir.AttrString("nearest_mode", "floor"))
    return True


def _enlarges(resize: ir.Node) -> bool:
    """Whether no scale of a Resize-10 or an Upsample is below 1, as far as that is known."""
    scales = list(resize.attributes.get_floats("scales", ()))
    if not scales and len(resize.inputs) > 1 and resize.inputs[1] is not None:
        tensor = ir.convenience.get_const_tensor(resize.inputs[1])
        scales = [] if tensor is None else [float(k) for k in tensor.numpy().reshape(-1)]
    return bool(scales) and min(scales) >= 1


def _interface(model: ir.Model) -> list[str | None]:
    return [v.name for v in (*model.graph.inputs, *model.graph.outputs)]


def _restore_interface(copy: ir.Model, model: ir.Model) -> None:
    """Put the declared types back: the converter writes what it infers over them."""
    pairs = zip(
        (*copy.graph.inputs, *copy.graph.outputs), (*model.graph.inputs, *model.graph.outputs), strict=True
    )
    for new, old in pairs:
        new.type, new.shape, new.doc_string = old.type, old.shape, old.doc_string
        new.metadata_props.update(old.metadata_props)


def _restore_metadata(copy: ir.Model, model: ir.Model) -> None:
    """Give nodes back the names, doc strings and metadata that onnx's converter drops."""
    known = {n.outputs[0].name: n for n in ir.traversal.RecursiveGraphIterator(model.graph) if n.outputs}
    for node in ir.traversal.RecursiveGraphIterator(copy.graph):
        old = known.get(node.outputs[0].name) if node.outputs else None
        if old is not None and old.op_type == node.op_type:
            node.name = old.name
            node.doc_string = old.doc_string
            node.metadata_props.update(old.metadata_props)
    copy.metadata_props.update(model.metadata_props)
    copy.graph.metadata_props.update(model.graph.metadata_props)
    copy.graph.doc_string = model.graph.doc_string
    copy.doc_string = model.doc_string
    copy.producer_name, copy.producer_version = model.producer_name, model.producer_version
    copy.domain, copy.model_version, copy.ir_version = model.domain, model.model_version, model.ir_version


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the converters from logging to the user's terminal."""
    loggers = [logging.getLogger(name) for name in _CONVERTER_LOGS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
