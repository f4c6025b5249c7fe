"""Walks that were done before: what the same nodes came to, so that it need not be found again.

A model repeats itself. Two walks are in one state as long as they begin at values of one shape and type and
then visit nodes with the same operators, attributes, operands and result shapes; and what is not the same
from the first scale on still has its beginning in common. States form a tree, from a shape and a type on:

    [B, S, 64] float - ReduceMean(0) - Sub(0, 1) - Mul(2, 2) - ReduceMean(3) - Add(4, 1e-5) - …
                                                 - Pow(2, 2.0) - …

Operands are positions in the walk, or the numbers of small constants. A node with any other operand, or with
an operator that asks for more than that, ends the common part. Atoms are only ever added to an algebra, so
the state of an earlier moment is a number of atoms; the walk goes on with a copy of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from normfuse.algebra.frame import End, Frame, Traced
from normfuse.graph.facts import Facts

_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "GlobalAveragePool")
_UNARY = ("Neg", "Sqrt", "Reciprocal", "Abs", "Identity", "Cast", "Relu", "Transpose")
_OTHER = ("Add", "Sub", "Mul", "Div", "Sum", "Pow", "Max", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
# Operators of which the walk asks for nothing but operands, attributes, and shape and type of the result.
_PLAIN = frozenset((*_REDUCTIONS, *_UNARY, *_OTHER))
_MAX_STATES = 4096
_MAX_CONSTANT = 16  # elements


@dataclass(eq=False)
class State:
    """A state of a walk: the frame as it was then, what the last node came to, and the states behind it.

    verdict: what that result was judged to be, once it was.
    """

    frame: Frame
    atoms: int
    reduced: frozenset[int]
    result: Traced | End | None = None
    following: dict[Hashable, State] = field(default_factory=dict)
    verdict: tuple[Any] | None = None

    @staticmethod
    def of(frame: Frame, result: Traced | End | None = None) -> State:
        """The state that a frame is in now."""
        return State(frame, len(frame.algebra.atoms), frozenset(frame.reduced), result)

    def resumed(self) -> Frame:
        """A frame in this state, to go on with."""
        return self.frame.copy(self.atoms, self.reduced)


class Memory:
    """The states that the walks over one model have been in."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.starts: dict[Hashable, State] = {}
        self.count = 0
        self._constants: dict[ir.Value, Hashable] = {}

    def start(self, key: Hashable, frame: Frame) -> State:
        """Remember how a walk began."""
        state = self.starts[key] = State.of(frame)
        return state

    def note(self, before: State, key: Hashable, frame: Frame, result: Traced | End) -> State | None:
        """Remember what a node came to in a state; None when there is no more room."""
        self.count += 1
        if self.count > _MAX_STATES:
            return None
        state = before.following[key] = State.of(frame, result)
        return state

    def key(self, node: ir.Node, positions: Mapping[ir.Value, int]) -> Hashable:
        """All that a walk asks of a node; None where that cannot be said so."""
        op_type, outputs, shapes = node.op_type, node.outputs, self.facts.shapes
        if op_type not in _PLAIN or len(outputs) != 1:
            return None
        parts: list[Hashable] = [op_type, shapes.of(outputs[0]), shapes.dtype(outputs[0])]
        for value in node.inputs:
            part: Hashable = None if value is None else positions.get(value)
            if part is None and value is not None:
                part = self._constant(value)
                if part is None:
                    return None
            parts.append(part)
        for name, attribute in node.attributes.data.items():
            held = _held(attribute)
            if held is None:
                return None
            parts.append((name, held))
        return tuple(parts)

    def _constant(self, value: ir.Value) -> Hashable:
        """A small constant by what it holds; None for any other value."""
        if value not in self._constants:
            array = self.facts.constants.get(value)
            known = array is not None and array.size <= _MAX_CONSTANT and array.dtype.kind in "fiuV"
            self._constants[value] = (
                (self.facts.shapes.of(value), array.shape, array.dtype.str, array.dtype.name, array.tobytes())
                if array is not None and known
                else None
            )
        return self._constants[value]


def _held(attribute: ir.Attr) -> Hashable:
    """A number or a list of integers; None for anything else."""
    if attribute.is_ref():
        return None
    if attribute.type is ir.AttributeType.INTS:
        return tuple(attribute.as_ints())
    return attribute.value if isinstance(attribute.value, (int, float)) else None
