"""The walk: from a base value forward, giving every value that is reached its polynomial.

Nodes are visited in the order of the graph, so all operands of a node that can be traced have been by then.
The walk is bounded in nodes and in terms, so that the work is linear in the size of the model; where it
stops with a reason that a user should know, it keeps an `Ending`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from normfuse.algebra.frame import End, Frame, Traced
from normfuse.algebra.memory import Memory, State
from normfuse.algebra.operators import OPERATORS, Context, Operator
from normfuse.graph.facts import Facts
from normfuse.graph.shapes import Dim

MAX_TRACED = 160
MAX_VISITED = 1000
MIN_OPSET = 7  # before it, operands broadcast by attributes
FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})


@dataclass(frozen=True)
class Ending:
    """A node at which the walk ended, and why."""

    node: ir.Node
    reason: str
    detail: str


@dataclass
class Walk:
    """What was found from one base value: every traced value in graph order, and where the walk ended.

    source: the tensor of which the base is a view, where it is one and both could be traced.
    states: those that the walk shares with others, by the value that led to each.
    """

    base: ir.Value
    frame: Frame
    source: ir.Value | None = None
    traced: dict[ir.Value, Traced] = field(default_factory=dict)
    endings: list[Ending] = field(default_factory=list)
    states: dict[ir.Value, State] = field(default_factory=dict)


Order = Mapping[ir.Node, int]


def node_order(graph: ir.Graph | ir.Function) -> dict[ir.Node, int]:
    """The position of every node of one graph."""
    return {node: k for k, node in enumerate(graph)}


def walk(facts: Facts, base: ir.Value, order: Order, memory: Memory | None = None) -> Walk | None:
    """Trace everything that `base` determines, or None when its shape or type is not known.

    order: positions of the nodes of the base's own graph; the walk does not leave that graph.
    memory: of the walks so far.
    """
    shape, dtype = facts.shapes.of(base), facts.shapes.dtype(base)
    if shape is None or dtype not in FLOATS or facts.opset < MIN_OPSET:
        return None
    walker = _Walker(facts, memory or Memory(facts), base, order)
    found = walker.found
    waiting: dict[int, ir.Node] = {}  # every node that was ever to be visited, by its position
    queue: list[int] = []
    for start in found.traced:
        _wait(start, order, waiting, queue, base.producer())
    for _ in range(MAX_VISITED):
        if not queue:
            return found
        if len(found.traced) > MAX_TRACED:
            break
        node = waiting[heapq.heappop(queue)]
        if walker.visit(node):
            _wait(node.outputs[0], order, waiting, queue)
    if queue:
        found.endings.append(Ending(waiting[queue[0]], "too-complex", "one value is read by too many nodes"))
    return found


def _wait(value: ir.Value, order: Order, waiting: dict[int, ir.Node], queue: list[int],
          but: ir.Node | None = None) -> None:  # fmt: skip
    """Let the readers of a value be visited, each once, in the order of the graph."""
    for use in value.uses():
        position = order.get(use.node)
        if position is not None and position not in waiting and use.node is not but:
            waiting[position] = use.node
            heapq.heappush(queue, position)


class _Walker:
    """One walk: computes what each node comes to, or remembers it."""

    def __init__(self, facts: Facts, memory: Memory, base: ir.Value, order: Order) -> None:
        self.facts, self.memory = facts, memory
        shape, dtype = facts.shapes.of(base), facts.shapes.dtype(base)
        assert shape is not None
        assert dtype is not None
        source = _source(base, order)
        key = (shape, dtype, facts.shapes.of(source), source is None)
        known = memory.starts.get(key)
        # The state that this walk is in, while it is remembered; and whether its frame is another walk's.
        self.shared = known is not None
        self.state: State | None = known or memory.start(key, Frame(shape, dtype, facts.shapes.of(source)))
        frame = self.state.frame
        same = frame.source()
        self.found = Walk(base, frame, traced={base: frame.base()})
        if source is not None and same is not None:
            self.found = Walk(base, frame, source, {source: same, base: frame.base()})
        self.positions = {value: k for k, value in enumerate(self.found.traced)}
        self.context = Context(facts, frame, self.found.traced)

    def visit(self, node: ir.Node) -> bool:
        """Whether the walk goes on behind a node."""
        op_type, inputs, traced = node.op_type, node.inputs, self.found.traced
        operator = OPERATORS.get(op_type) if node.domain == "" else None
        if operator is None or not inputs or (op_type not in _ANY_OPERAND and inputs[0] not in traced):
            return False
        result = self._computed(operator, node) if self.state is None else self._recalled(operator, node)
        if isinstance(result, End):
            if result.reason:
                self.found.endings.append(Ending(node, result.reason, result.detail))
            return False
        out = node.outputs[0]
        if self.state is not None:
            self.found.states[out] = self.state
        self.positions[out] = len(traced)
        traced[out] = result
        return True

    def _recalled(self, operator: Operator, node: ir.Node) -> Traced | End:
        assert self.state is not None
        key = self.memory.key(node, self.positions)
        following = None if key is None else self.state.following.get(key)
        if following is not None and following.result is not None:
            self.state = following
            return following.result
        if self.shared:
            self.found.frame = self.state.resumed()
            self.context = Context(self.facts, self.found.frame, self.found.traced)
            self.shared = False
        result = self._computed(operator, node)
        self.state = None if key is None else self.memory.note(self.state, key, self.found.frame, result)
        return result

    def _computed(self, operator: Operator, node: ir.Node) -> Traced | End:
        result = operator(self.context, node)
        inferred = self.facts.shapes.of(node.outputs[0])
        if isinstance(result, Traced) and _contradicts(result.shape, inferred):
            return End("affine-expands-shape", "an operand enlarges the tensor")
        return result


def _source(base: ir.Value, order: Order) -> ir.Value | None:
    """The tensor of which a base is a view, where it is one."""
    view = base.producer()
    is_view = view is not None and view in order and view.op_type in _VIEWS and view.domain == ""
    return view.inputs[0] if view is not None and is_view else None


def _contradicts(traced: Sequence[Dim], inferred: Sequence[Dim] | None) -> bool:
    """Whether shape inference knows that a value has another shape than the walk takes it to have."""
    if inferred is None:
        return False
    pairs = zip(traced, inferred, strict=False)
    return len(traced) != len(inferred) or any(
        isinstance(n, int) and isinstance(m, int) and n != m for n, m in pairs
    )


_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
# Operators that may read the walk through an operand other than the first.
_ANY_OPERAND = frozenset({"Add", "Sub", "Mul", "Div", "Sum", "Max", "Pow"})
