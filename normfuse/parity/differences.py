"""Where two models say different things: the pieces between values that both have, for models not to be run.

    a    h -> ReduceMean, Sub, … -> y -> MatMul(w) -> z          y is computed by other nodes: a piece h -> y
    b    h -> LayerNormalization -> y -> MatMul(w) -> z          z is computed alike from the same: no piece

Values are the same where they have the same name. A node is the same where its operator, its attributes, the
names of its operands and the constants among these are, and its operator means the same at both opsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto

from normfuse.parity.model import Model, names_read
from normfuse.parity.settings import Boundary

# Bytes of a constant that are compared at a time.
BLOCK = 1 << 24


@dataclass(frozen=True, eq=False)
class Differences:
    """What two models compute alike, asked value by value; answers are kept."""

    before: Model
    after: Model
    _same_constants: dict[str, bool] = field(default_factory=dict)

    def boundaries(self) -> list[Boundary]:
        """One for each value of both models that other nodes compute; it reads the nearest values of both."""
        found = []
        for name in self._shared:
            if self._same_node(name):
                continue
            reads = tuple(dict.fromkeys((*self._reads(self.before, name), *self._reads(self.after, name))))
            if reads:
                found.append(Boundary("", reads[0], name, name, reads))
        return found

    def unmatched(self) -> str:
        """Why the pieces would not cover the models, or ""."""
        if set(self.before.inputs) != set(self.after.inputs):
            return "the two models have different inputs"
        if self.before.outputs != self.after.outputs:
            return "the two models have different outputs"
        known = {*self.before.main.position, *self.before.main.initializers, *self.before.inputs}
        missing = [name for name in self.after.outputs if name not in known]
        return f"output {missing[0]!r} is computed by neither" if missing else ""

    @cached_property
    def _shared(self) -> Mapping[str, None]:
        """The run-time values that both models compute, in order."""
        constant = self.before.main.constant | self.after.main.constant
        both = (name for name in self.before.main.position if name in self.after.main.position)
        return dict.fromkeys(name for name in both if name not in constant)

    def _reads(self, model: Model, name: str) -> list[str]:
        """The values of both models that a value is computed from, without others in between."""
        found, seen = [], set()
        stack = sorted(names_read(model.main.graph.node[model.main.position[name]]))
        while stack:
            value = stack.pop()
            if value in seen or value in model.main.constant:
                continue
            seen.add(value)
            if value in self._shared or value in model.inputs:
                found.append(value)
            elif value in model.main.position:
                stack += sorted(names_read(model.main.graph.node[model.main.position[value]]))
        return sorted(found)

    def _same_node(self, name: str) -> bool:
        a, b = (m.main.graph.node[m.main.position[name]] for m in (self.before, self.after))
        if _signature(a) != _signature(b) or _version(self.before, a) != _version(self.after, b):
            return False
        return all(self._same_operand(read) for read in names_read(a))

    def _same_operand(self, name: str) -> bool:
        """A constant must hold the same; of a run-time value it is enough that both compute it."""
        constant = [name in m.main.constant for m in (self.before, self.after)]
        if not any(constant):
            return name in self.after.main.position or name in self.after.inputs
        if name not in self._same_constants:
            self._same_constants[name] = all(constant) and self._same_constant(name)
        return self._same_constants[name]

    def _same_constant(self, name: str) -> bool:
        a, b = self.before.constant(name), self.after.constant(name)
        if a is None or b is None:
            return False
        if a.data_type != b.data_type or list(a.dims) != list(b.dims):
            return False
        place = self.before.place(a)
        return (place is not None and place == self.after.place(b)) or self._same_values(a, b)

    def _same_values(self, a: TensorProto, b: TensorProto) -> bool:
        views = self.before.view(a), self.after.view(b)
        if views[0] is None or views[1] is None:
            return bool(self.before.tensor(a).SerializeToString() == self.after.tensor(b).SerializeToString())
        x, y = (np.ravel(view).view(np.uint8) for view in views if view is not None)
        return all(np.array_equal(x[i : i + BLOCK], y[i : i + BLOCK]) for i in range(0, x.size, BLOCK))


def _version(model: Model, node: onnx.NodeProto) -> int:
    """The opset at which the operator became what it is at the model's."""
    opset = model.opsets.get(node.domain, 1)
    try:
        return int(onnx.defs.get_schema(node.op_type, opset, node.domain).since_version)
    except onnx.defs.SchemaError:
        return opset


def _signature(node: onnx.NodeProto) -> tuple[str, str, list[str], list[str], Mapping[str, bytes]]:
    attributes = {a.name: a.SerializeToString(deterministic=True) for a in node.attribute}
    return node.op_type, node.domain, list(node.input), list(node.output), attributes
