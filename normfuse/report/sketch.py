"""Draws sites: from the two models, and the names at which a site begins and ends, to pictures.

    ends    y, the value that the site computes; its name is the same in both models
    begins  x, the value that it reads; the walk from y goes back to x, and to what is computed beside it

A value that does not depend on x is a constant, and is written into the box that reads it, or another input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from normfuse.graph.functions import inlined
from normfuse.report.picture import Box, Picture, Sketch
from normfuse.report.record import DONE, Site

MAX_BOXES = 60
"""Above this nobody can read a picture."""
MAX_NUMBERS = 4
"""Above this a constant is not written out."""
_SHOWN = ("axis", "axes", "epsilon", "keepdims", "p", "num_groups", "perm", "alpha", "beta", "size")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "Sum", "Max", "Min", "Clip")
_BY_DEFAULT = {"keepdims": 1}


def with_pictures(
    sites: Sequence[Site], before: ir.Model, after: ir.Model | None
) -> tuple[tuple[Site, ...], tuple[Picture, ...]]:
    """The sites, each with the number of its picture, and the distinct pictures.

    before: the source, as it was read. after: the result; None draws only what is there before.
    """
    old = _values(before)
    new = _values(after) if after is not None else {}
    known: dict[Picture, int] = {}
    drawn = []
    for site in sites:
        picture = Picture(_sketch(old, site), _sketch(new, site) if site.status in DONE else ())
        if picture.before or picture.after:
            site = dataclasses.replace(site, picture=known.setdefault(picture, len(known)))
        drawn.append(site)
    return tuple(drawn), tuple(known)


def _values(model: ir.Model) -> dict[str, ir.Value]:
    """Every value that a node computes, by name; bodies included, and calls written out."""
    flat = inlined(model, lambda node: True) if model.functions else None
    nodes = ir.traversal.RecursiveGraphIterator((flat or model).graph)
    return {value.name: value for node in nodes for value in node.outputs if value.name}


def _sketch(values: Mapping[str, ir.Value], site: Site) -> Sketch:
    """The nodes between what a site reads and what it computes; nothing where they are not found."""
    end = values.get(site.output)
    if end is None or not site.input:
        return ()
    nodes = _between(site.input, end)
    return _boxes(nodes, site.input) if nodes else ()


def _between(begin: str, end: ir.Value) -> list[ir.Node]:
    """The nodes that lie on a way from `begin` to `end`, in topological order; [] above the bound."""
    depends: dict[ir.Value, bool] = {}
    order: list[ir.Node] = []
    stack: list[tuple[ir.Value, bool]] = [(end, False)]
    while stack:
        value, done = stack.pop()
        producer = value.producer()
        if done and producer is not None:
            depends[value] = any(depends.get(v, False) for v in producer.inputs if v is not None)
            if depends[value] and producer not in order:
                order.append(producer)
            continue
        if value in depends:
            continue
        depends[value] = value.name == begin
        if producer is None or depends[value] or value.is_initializer():
            continue
        if len(depends) > 8 * MAX_BOXES:
            return []
        stack.append((value, True))
        stack.extend((v, False) for v in reversed(producer.inputs) if v is not None and v not in depends)
    return order if len(order) <= MAX_BOXES else []


def _boxes(nodes: Sequence[ir.Node], begin: str) -> Sketch:
    inside = {value for node in nodes for value in node.outputs}
    boxes: list[Box] = []
    place: dict[ir.Value, int] = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value not in inside and value not in place and not _is_constant(value):
                place[value] = len(boxes)
                boxes.append(Box("input" if value.name == begin else "other value"))
        reads = tuple(place[v] for v in node.inputs if v is not None and v in place)
        place.update((value, len(boxes)) for value in node.outputs)
        boxes.append(Box(node.op_type, _operator(node), _detail(node), reads))
    return tuple(boxes)


def _operator(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain != "" else node.op_type


def _is_constant(value: ir.Value) -> bool:
    """Whether a value comes from constants alone, by a short way."""
    for _ in range(8):
        producer = value.producer()
        if value.is_initializer() or value.const_value is not None:
            return True
        if producer is None or producer.op_type == "Constant":
            return producer is not None
        operands = [v for v in producer.inputs if v is not None]
        if len(operands) != 1:
            return bool(operands) and all(v.is_initializer() for v in operands)
        value = operands[0]
    return False


def _detail(node: ir.Node) -> str:
    """Attributes that say what is computed, then single numbers by value and larger constants by kind."""
    words = []
    for name in _SHOWN:
        attribute = node.attributes.get(name)
        if attribute is not None and not attribute.is_ref() and attribute.value != _BY_DEFAULT.get(name):
            words.append(f"{name} {_short(attribute.value)}")
    if node.op_type.startswith("Reduce") and len(node.inputs) > 1 and node.inputs[1] is not None:
        words.append(f"axes {_constant(node.inputs[1])}")  # where newer opsets have them
    if node.op_type in _ARITHMETIC:
        constants = [v for v in node.inputs if v is not None and _is_constant(v)]
        words += dict.fromkeys(_constant(value) for value in constants)
    return ", ".join(words)


def _constant(value: ir.Value) -> str:
    tensor = _tensor(value)
    if tensor is None or tensor.size > MAX_NUMBERS or not _is_number(tensor):
        return "constant"
    return _short(np.asarray(tensor.numpy()).reshape(-1).tolist())


def _is_number(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype not in (ir.DataType.STRING, ir.DataType.UNDEFINED)


def _tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """What a constant holds, where that can be had without computing anything."""
    if value.const_value is not None:
        return value.const_value
    producer = value.producer()
    if producer is None or producer.op_type != "Constant":
        return None
    attribute = producer.attributes.get("value")
    return attribute.as_tensor() if attribute is not None and not attribute.is_ref() else None


def _short(value: object) -> str:
    """A number with as many digits as people read, or several of them."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return " ".join(_short(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
