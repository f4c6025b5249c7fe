"""Local response normalization: x / (k + alpha * mean of x^2 over neighbouring channels)^beta.

Krizhevsky, Sutskever and Hinton, 2012. ONNX LRN-13, whose alpha is divided by the size as well.

    before   x -> Mul(x, x) -> view [N, 1, C, …] -> Pad -> AveragePool -> view -> Mul(alpha) -> Add(k)
               -> Pow(beta) -> Div(x, .)
    after    x -> LRN(size, alpha, beta, bias=k)

Only odd windows: ONNX puts the extra channel of an even one behind, torch in front. It is no polynomial of a
mean over whole axes, so it is the one normalization that is read off its operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.norms.refusal import Refusal

_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze"})
_MAX_VIEWS = 3


@dataclass(frozen=True)
class LocalResponse:
    """One site: y = x / (bias + alpha * mean(x^2 over `size` channels))^beta, all in float32."""

    input: ir.Value
    output: ir.Value
    size: int
    alpha: float
    beta: float
    bias: float
    dtype: ir.DataType
    spelled: tuple[ir.Node, ...]


def find_local_responses(facts: Facts, graph: ir.Graph) -> Iterator[LocalResponse | Refusal]:
    """Every division by a power of a pooled square of the dividend."""
    for node in graph:
        if node.op_type == "AveragePool" and node.domain == "":
            squared = _squared(node)
            division = _division(node)
            if squared is None or division is None:
                continue
            found = _read(facts, node, squared, division)
            anchor = division[-1]
            yield found or Refusal("LocalResponseNorm", "no-fused-operator", anchor, "LRN has no such window")


def _squared(pool: ir.Node) -> list[ir.Node] | None:
    """Mul(x, x), views and Pad before a pooling, in graph order."""
    nodes: list[ir.Node] = []
    value = pool.inputs[0]
    for _ in range(2 * _MAX_VIEWS):
        node = None if value is None else value.producer()
        if node is None or node.domain != "":
            return None
        nodes.insert(0, node)
        if node.op_type == "Mul" and node.inputs[0] is node.inputs[1]:
            return nodes
        if node.op_type not in _VIEWS and node.op_type != "Pad":
            return None
        value = node.inputs[0]
    return None


def _division(pool: ir.Node) -> list[ir.Node] | None:
    """Views, Mul, Add, Pow and Div behind a pooling."""
    nodes: list[ir.Node] = []
    wanted = ["Mul", "Add", "Pow", "Div"]
    node = pool
    while wanted:
        consumers = node.outputs[0].consumers()
        if (
            len(consumers) != 1
            or node.outputs[0].is_graph_output()
            or len(nodes) > len(wanted) + 2 * _MAX_VIEWS
        ):
            return None
        node = consumers[0]
        nodes.append(node)
        if node.domain != "":
            return None
        if node.op_type == wanted[0]:
            wanted.pop(0)
        elif node.op_type not in _VIEWS or len(wanted) < 4:
            return None
    return nodes


def _read(
    facts: Facts, pool: ir.Node, squared: list[ir.Node], division: list[ir.Node]
) -> LocalResponse | None:
    x = squared[0].inputs[0]
    shape, dtype = facts.shapes.of(x), facts.shapes.dtype(x)
    scaled, shifted, raised, divided = division[-4:]
    if x is None or shape is None or len(shape) < 3 or dtype is None or divided.inputs[0] is not x:
        return None
    size = _window(facts, pool, squared, shape)
    back = next((n.outputs[0] for n in division[:-4][::-1]), pool.outputs[0])
    alpha, bias = _other(facts, scaled), _other(facts, shifted)
    beta = facts.constants.scalar(raised.inputs[1])
    if size is None or facts.shapes.of(back) != shape or facts.shapes.of(divided.outputs[0]) != shape:
        return None
    if alpha is None or bias is None or beta is None or alpha < 0 or bias <= 0:
        return None
    return LocalResponse(x, divided.outputs[0], size, alpha, beta, bias, dtype, (*squared, pool, *division))


def _other(facts: Facts, node: ir.Node) -> float | None:
    """The constant operand of a Mul or Add."""
    known = [facts.constants.scalar(v) for v in node.inputs]
    return next((k for k in known if k is not None), None)


def _window(facts: Facts, pool: ir.Node, squared: list[ir.Node], shape: tuple[int | str, ...]) -> int | None:
    """The number of channels of a centred, odd window over [N, 1, C, …]; None for any other pooling."""
    pads = [n for n in squared if n.op_type == "Pad"]
    kernel = list(pool.attributes.get_ints("kernel_shape", ()))
    view = facts.shapes.of(pads[0].inputs[0]) if len(pads) == 1 and squared[-1] is pads[0] else None
    if view is None or len(view) != len(kernel) + 2 or len(view) < 4 or view[:3] != (shape[0], 1, shape[1]):
        return None
    size = kernel[0]
    plain = set(kernel[1:]) == {1} and set(pool.attributes.get_ints("strides", (1,))) == {1}
    unpadded = not any(pool.attributes.get_ints("pads", (0,))) and not pool.attributes.get_int("ceil_mode", 0)
    if size % 2 == 0 or not plain or not unpadded or set(pool.attributes.get_ints("dilations", (1,))) != {1}:
        return None
    return size if _is_centred(facts, pads[0], len(view), size) else None


def _is_centred(facts: Facts, pad: ir.Node, rank: int, size: int) -> bool:
    """Whether zeros are put around the third dimension only, as many on both sides."""
    if pad.attributes.get_string("mode", "constant") != "constant" or len(pad.inputs) > 3:
        return False
    value = pad.inputs[2] if len(pad.inputs) > 2 else None
    zero = value is None or facts.constants.scalar(value) == 0
    amounts = facts.static_integers(pad.inputs[1]) if len(pad.inputs) > 1 else None
    half = size // 2
    wanted = [0] * (2 * rank)
    wanted[2] = wanted[rank + 2] = half
    return zero and amounts is not None and list(amounts) == wanted
