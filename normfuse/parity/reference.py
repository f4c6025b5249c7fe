"""The truth to hold a rewrite against: its original nodes, evaluated in float64.

Every float tensor, constant and cast of the piece becomes float64, so that what is left is the function
itself without the roundings of its data type. Constants are inputs of the evaluation, so that they can be
nudged by one ulp, which tells how much a rounding matters (see noise.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from onnx import AttributeProto, TensorProto, numpy_helper

from normfuse.parity.dtypes import is_float
from normfuse.parity.model import FLOATS, subgraphs
from normfuse.parity.noise import lengths, nudge_halfway
from normfuse.parity.settings import Array

# Attributes that name a data type to compute in or to cast to.
TYPE_ATTRIBUTES = ("to", "dtype", "stash_type")


# What the evaluator and numpy raise on an operator, an attribute or a type that they do not know.
REFUSALS = (
    NotImplementedError,
    ValueError,
    TypeError,
    RuntimeError,
    KeyError,
    IndexError,
    AttributeError,
    np.exceptions.AxisError,
)


class CannotEvaluateError(Exception):
    """float64 evaluation is not possible for these nodes; the text says why."""


def evaluator(proto: onnx.ModelProto) -> Any:
    """ONNX's reference evaluator, with the few operators that it lacks or is slow at."""
    from onnx.reference import ReferenceEvaluator

    from normfuse.parity.contrib_operators import CONTRIB
    from normfuse.parity.reference_operators import OPERATORS

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ReferenceEvaluator(proto, new_ops=[*OPERATORS, *CONTRIB])
    except REFUSALS as error:
        raise CannotEvaluateError(str(error)) from error


@dataclass(frozen=True, eq=False)
class Float64:
    """A piece in float64.

    constants: its float constants with more than one element, in their stored type, which can be nudged.
    """

    proto: onnx.ModelProto
    constants: Mapping[str, Array]
    _evaluator: Any = field(repr=False)
    _wide: dict[str, Array] = field(default_factory=dict)
    _nudged: dict[str, Array] = field(default_factory=dict)

    @staticmethod
    def of(piece: onnx.ModelProto, beside: Mapping[str, Array] | None = None) -> Float64:
        """Prepare a piece, as a model of its own, for evaluation in float64; beside: weights not in it."""
        proto = onnx.ModelProto()
        proto.CopyFrom(piece)
        constants = _lift(proto.graph, beside or {})
        _widen(proto.graph)
        for value in proto.graph.input:
            if value.type.tensor_type.elem_type in FLOATS:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
        return Float64(proto, constants, evaluator(proto))

    @property
    def wide(self) -> Mapping[str, Array]:
        """The constants in float64."""
        if len(self._wide) < len(self.constants):
            self._wide.update({k: v.astype(np.float64) for k, v in self.constants.items()})
        return self._wide

    def run(self, feed: Mapping[str, Array], constants: Mapping[str, Array] | None = None) -> dict[str, Any]:
        """All values of the piece by name; constants: others than its own."""
        given = {**(self.wide if constants is None else constants), **feed}
        wide = {k: v.astype(np.float64, copy=False) if is_float(v) else v for k, v in given.items()}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                values: dict[str, Any] = self._evaluator.run(None, wide, intermediate=True)
        except REFUSALS as error:
            raise CannotEvaluateError(str(error)) from error
        return values

    def nudged(self, rng: Generator, most: int) -> Mapping[str, Array]:
        """The constants moved by half an ulp, in float64; drawn once, for they are the same on every input.

        Those of more elements than `most` stay: to draw for millions takes longer than to compute with them.
        """
        if not self._nudged:
            fixed = lengths(self.proto)
            for name in sorted(self.constants):
                array = self.constants[name]
                stays = name in fixed or array.size > most
                self._nudged[name] = self.wide[name] if stays else nudge_halfway(array, rng)
        return {k: v.astype(np.float64, copy=False) for k, v in self._nudged.items()}

    def forget_nudged(self) -> None:
        """Have the next nudged constants drawn anew."""
        self._nudged.clear()

    def output(self, feed: Mapping[str, Array], constants: Mapping[str, Array] | None = None) -> Array:
        """The piece's output."""
        return np.asarray(self.run(feed, constants)[self.proto.graph.output[0].name])


def _lift(graph: onnx.GraphProto, beside: Mapping[str, Array]) -> dict[str, Array]:
    """Takes float constants with more than one element out of the graph; they become inputs.

    beside: those that are not in the graph.
    """
    lifted: dict[str, Array] = {}
    for tensor in list(graph.initializer):
        if tensor.data_type in FLOATS and np.prod(tensor.dims, dtype=np.int64) > 1:
            known = beside.get(tensor.name)
            lifted[tensor.name] = np.asarray(numpy_helper.to_array(tensor)) if known is None else known
            graph.initializer.remove(tensor)
        elif tensor.name in beside:
            tensor.CopyFrom(numpy_helper.from_array(beside[tensor.name], tensor.name))
    for node in list(graph.node):
        if node.op_type == "Constant" and node.domain == "" and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            if tensor.data_type in FLOATS and np.prod(tensor.dims, dtype=np.int64) > 1:
                lifted[node.output[0]] = np.asarray(numpy_helper.to_array(tensor))
                graph.node.remove(node)
    for name in lifted:
        graph.input.append(onnx.helper.make_tensor_value_info(name, TensorProto.DOUBLE, None))
    return lifted


def _widen(graph: onnx.GraphProto) -> None:
    """Every float constant and every cast to a float type becomes float64, in bodies too."""
    del graph.value_info[:]
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name in TYPE_ATTRIBUTES and attribute.i in FLOATS:
                attribute.i = TensorProto.DOUBLE
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                _constant_of(attribute)
        for body in subgraphs(node):
            _widen(body)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in FLOATS and tensor.data_type != TensorProto.DOUBLE:
        values = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _constant_of(attribute: AttributeProto) -> None:
    """value_float and value_floats are float32; as a tensor they can be float64."""
    scalar = attribute.name == "value_float"
    values = np.array(attribute.f if scalar else list(attribute.floats), np.float64)
    attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(values)))
