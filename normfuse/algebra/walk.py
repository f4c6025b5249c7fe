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
from normfuse.algebra.operators import OPERATORS, Context
from normfuse.graph.facts import Facts
from normfuse.graph.shapes import Dim

MAX_TRACED = 160
MAX_VISITED = 1000
MIN_OPSET = 7  # before it, operands broadcast by attributes
FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
_DOMAINS = ("", "ai.onnx")


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
    """

    base: ir.Value
    frame: Frame
    source: ir.Value | None = None
    traced: dict[ir.Value, Traced] = field(default_factory=dict)
    endings: list[Ending] = field(default_factory=list)


Order = Mapping[ir.Node, int]


def node_order(graph: ir.Graph | ir.Function) -> dict[ir.Node, int]:
    """The position of every node of one graph."""
    return {node: k for k, node in enumerate(graph)}


def walk(facts: Facts, base: ir.Value, order: Order) -> Walk | None:
    """Trace everything that `base` determines, or None when its shape or type is not known.

    order: positions of the nodes of the base's own graph; the walk does not leave that graph.
    """
    shape, dtype = facts.shapes.of(base), facts.shapes.dtype(base)
    if shape is None or dtype not in FLOATS or facts.opset < MIN_OPSET:
        return None
    found = _start(facts, base, shape, dtype, order)
    context = Context(facts, found.frame, found.traced)
    readers = {n for start in found.traced for n in start.consumers()}
    queue = [(order[n], n) for n in readers if n in order and n.outputs[0] is not base]
    heap = [(k, id(n), n) for k, n in queue]
    heapq.heapify(heap)
    seen = {n for _, n in queue}
    for _ in range(MAX_VISITED):
        if not heap:
            return found
        if len(found.traced) > MAX_TRACED:
            break
        node = heapq.heappop(heap)[2]
        result = _visit(context, node)
        if isinstance(result, End):
            if result.reason:
                found.endings.append(Ending(node, result.reason, result.detail))
            continue
        found.traced[node.outputs[0]] = result
        for consumer in node.outputs[0].consumers():
            if consumer in order and consumer not in seen:
                seen.add(consumer)
                heapq.heappush(heap, (order[consumer], id(consumer), consumer))
    if heap:
        found.endings.append(Ending(heap[0][2], "too-complex", "one value is read by too many nodes"))
    return found


def _start(facts: Facts, base: ir.Value, shape: tuple[Dim, ...], dtype: ir.DataType, order: Order) -> Walk:
    """The base, and the tensor of which it is a view."""
    view = base.producer()
    is_view = view is not None and view in order and view.op_type in _VIEWS and view.domain in _DOMAINS
    source = view.inputs[0] if view is not None and is_view else None
    frame = Frame(shape, dtype, facts.shapes.of(source))
    same = frame.source()
    if source is None or same is None:
        return Walk(base, frame, traced={base: frame.base()})
    return Walk(base, frame, source, {source: same, base: frame.base()})


def _visit(context: Context, node: ir.Node) -> Traced | End:
    operator = OPERATORS.get(node.op_type) if node.domain in _DOMAINS else None
    if (
        operator is None
        or not node.inputs
        or (node.op_type not in _ANY_OPERAND and context.get(node.inputs[0]) is None)
    ):
        return End()
    result = operator(context, node)
    if isinstance(result, Traced) and _contradicts(result.shape, context.facts.shapes.of(node.outputs[0])):
        return End("affine-expands-shape", "an operand enlarges the tensor")
    return result


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
