"""Nodes that no operator allows: too few operands, a required one absent, an attribute of another type.

    Add(x)                    Add takes 2 inputs
    ReduceMean<axes = 1.0>    the attribute axes is of type INTS

A runtime refuses them too, later and in other words. Everything behind may rely on it that a node of the
standard domain has the operands and the types that its operator says; that holds for onnxruntime's own
normalizations there as well. Operators of other domains are not looked into.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import onnx

from normfuse.errors import InputError

STANDARD = ("", "ai.onnx")
_LARGEST_VERSION = 2**31 - 1
_REQUIRED = onnx.defs.OpSchema.FormalParameterOption.Single
_KNOWN_TYPES = frozenset(onnx.AttributeProto.AttributeType.values()) - {onnx.AttributeProto.UNDEFINED}
_Opsets = dict[str, int]


@dataclass(frozen=True)
class _Signature:
    """What a node of an operator may have; of operator sets that are newer than this onnx, only the least."""

    inputs: range
    outputs: range
    required: tuple[int, ...]
    types: Mapping[str, int]
    mandatory: tuple[str, ...]


def opset_versions(opsets: Iterable[onnx.OperatorSetIdProto], where: str) -> _Opsets:
    """The version of each operator set; `InputError` for one that is no version number."""
    versions: _Opsets = {}
    for opset in opsets:
        if not 1 <= opset.version <= _LARGEST_VERSION:
            raise InputError(f"{where}: {opset.version} is no version of the operators of {opset.domain!r}")
        versions["" if opset.domain in STANDARD else opset.domain] = opset.version
    return versions


class Operators:
    """What the operators of some versions allow. A node like one before it is not looked at again."""

    def __init__(self, opsets: _Opsets) -> None:
        self.opsets = opsets
        self._allowed: set[tuple[object, ...]] = set()

    def check(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: tuple[tuple[str, int], ...],
    ) -> None:
        """Raise `InvalidNode` unless the node is allowed; what it holds was read already (name, type)."""
        likeness = (node.op_type, node.domain, len(inputs), len(outputs), attributes)
        if likeness in self._allowed and "" not in inputs:
            return
        check_node(node, self.opsets)
        if "" not in inputs:
            self._allowed.add(likeness)


class InvalidNode(Exception):  # noqa: N818 (what is wrong with a node, to be said with its place)
    """What a node lacks, or has too much of."""


def check_node(node: onnx.NodeProto, opsets: _Opsets) -> None:
    """Raise `InvalidNode` unless the node is one that its operator allows."""
    if not node.op_type:
        raise InvalidNode("does not say which operator it is")
    if not node.output:
        raise InvalidNode("computes nothing")
    given = {attribute.name: attribute.type for attribute in node.attribute}
    for name, kind in given.items():
        if kind not in _KNOWN_TYPES:
            raise InvalidNode(f"has an attribute {name!r} whose type is not said, or unknown")
    if node.domain not in STANDARD or "" not in opsets:
        return
    signature = _signature(node.op_type, opsets[""])
    if signature is None:
        return
    if len(node.input) not in signature.inputs:
        raise InvalidNode(f"has {_counted(len(node.input), signature.inputs, 'input')}")
    if len(node.output) not in signature.outputs:
        raise InvalidNode(f"has {_counted(len(node.output), signature.outputs, 'output')}")
    for k in signature.required:
        if k < len(node.input) and not node.input[k]:
            raise InvalidNode(f"lacks its input {k}, which it needs")
    for name, kind in given.items():
        wanted = signature.types.get(name, kind)
        if kind != wanted:
            raise InvalidNode(f"has an attribute {name!r} of type {_name(kind)}, not {_name(wanted)}")
    for name in signature.mandatory:
        if name not in given:
            raise InvalidNode(f"lacks its attribute {name!r}")


def _counted(count: int, allowed: range, what: str) -> str:
    least, most = allowed[0], allowed[-1]
    bounds = f"{least}" if least == most else f"{least} or more" if most > 1000 else f"{least} to {most}"
    return f"{count} {what}{'' if count == 1 else 's'}, and the operator takes {bounds}"


def _number(kind: onnx.defs.OpSchema.AttrType) -> int:
    """AttrType.INTS -> the number of INTS in a message."""
    return int(onnx.AttributeProto.AttributeType.Value(str(kind).rpartition(".")[2]))


def _name(kind: int) -> str:
    return str(onnx.AttributeProto.AttributeType.Name(kind))


_NORM_TYPES = {"axis": onnx.AttributeProto.INT, "epsilon": onnx.AttributeProto.FLOAT}
# onnxruntime's, in the standard domain at opsets that have none of this name.
_RUNTIMES_OWN = {
    "LayerNormalization": _Signature(range(2, 4), range(1, 4), (0, 1), _NORM_TYPES, ()),
    "SimplifiedLayerNormalization": _Signature(range(2, 3), range(1, 3), (0, 1), _NORM_TYPES, ()),
}


@lru_cache(maxsize=4096)
def _signature(op_type: str, version: int) -> _Signature | None:
    """What ONNX says of an operator; None where it knows none of this name at this version."""
    if not onnx.defs.has(op_type, version, ""):
        return _RUNTIMES_OWN.get(op_type)
    schema = onnx.defs.get_schema(op_type, version, "")
    known = version <= onnx.defs.onnx_opset_version()
    most = (schema.max_input, schema.max_output) if known else (_LARGEST_VERSION, _LARGEST_VERSION)
    return _Signature(
        range(schema.min_input, most[0] + 1),
        range(schema.min_output, most[1] + 1),
        tuple(k for k, formal in enumerate(schema.inputs) if formal.option == _REQUIRED),
        {name: _number(attribute.type) for name, attribute in schema.attributes.items()},
        tuple(name for name, attribute in schema.attributes.items() if attribute.required),
    )
