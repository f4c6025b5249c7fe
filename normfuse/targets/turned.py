"""A fused norm between two Transposes that undo each other, as a norm over inner axes.

    before   Transpose(0,2,3,1) -> LayerNormalization -> Transpose(0,3,1,2)      torchvision's LayerNorm2d
    after    the same over axis 1, as the target says that (see statistics.py)

Only where the target's first choice needs no Transpose: then both are gone.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from normfuse.algebra.coefficient import Array
from normfuse.graph.facts import Facts
from normfuse.graph.surgery import replace
from normfuse.norms.norm import Kind, Norm
from normfuse.norms.refusal import Refusal
from normfuse.options import Leave
from normfuse.targets.absorbed import Absorbed
from normfuse.targets.lowering import AS_SPELLED, candidates, choose, discard, lower
from normfuse.targets.plan import Plan
from normfuse.targets.statistics import MATMUL_STATISTICS, is_as_exact_as_the_operator
from normfuse.targets.target import Lowered, Target

_KINDS: dict[str, Kind] = {
    "LayerNormalization": "LayerNorm",
    "RMSNormalization": "RMSNorm",
    "SimplifiedLayerNormalization": "RMSNorm",
}


def absorb_transposes(
    facts: Facts,
    graph: ir.Graph,
    target: Target,
    leave: Leave,
    plan: Plan,
    choices: dict[str, tuple[str, ...]],
) -> list[Absorbed]:
    """Say every norm between two Transposes without them, where the target is faster so.

    leave: (kind, anchor, output) -> a reason to leave one as it is, or None. choices: what tuning may try; it
    gets what each norm that is found here has.
    """
    found = []
    for node in list(graph):
        norm = _between(facts, node)
        possible = () if norm is None else candidates(norm, target, facts.opset)
        if norm is None or MATMUL_STATISTICS.name not in (way.name for way in possible[:1]):
            continue
        if not is_as_exact_as_the_operator(norm):
            continue
        inner, output = node.outputs[0].name or "", norm.output.name or ""
        choices[output] = tuple(way.name for way in possible)
        choice = choose(norm, target, possible, plan)
        if (
            leave(norm.kind, node.name or inner, output) is not None
            or (choice or possible[0]).name == AS_SPELLED.name
        ):
            continue
        absorbed = _absorb(facts, node, norm, lower(facts, norm, norm.input, target, possible, choice))
        if absorbed is not None:
            choices.pop(inner, None)
            found.append(absorbed)
    return found


def _absorb(facts: Facts, node: ir.Node, norm: Norm, lowered: Lowered | Refusal) -> Absorbed | None:
    """Put a lowering in the place of the fused operator and the Transposes; None where that is no gain."""
    if isinstance(lowered, Refusal):
        return None
    if [n.op_type for n in lowered.nodes] == ["Transpose", node.op_type, "Transpose"]:
        discard(facts, lowered)  # as it is, which a plan may ask for by name
        return None
    inner, output = node.outputs[0].name or "", norm.output.name or ""
    source, anchor, spelling = norm.input.name or "", node.name or inner, norm.spelling
    replace(facts, norm.output, lowered.nodes, lowered.output)
    return Absorbed(
        norm=inner,
        output=output,
        inputs=(source,),
        anchor=anchor,
        kind=norm.kind,
        spelling=spelling,
        operator=lowered.operator,
        lowering=lowered.lowering,
        detail="without the Transposes around it",
    )


def _between(facts: Facts, node: ir.Node) -> Norm | None:
    """The norm that a fused operator and the Transposes around it are, over the axes before them."""
    if node.op_type not in _KINDS or node.domain != "" or not node.inputs or node.inputs[0] is None:
        return None
    first, last = node.inputs[0].producer(), _only_reader(node)
    if first is None or last is None or not (_is_transpose(first) and _is_transpose(last)):
        return None
    x, turned = first.inputs[0], facts.shapes.of(node.inputs[0])
    shape, dtype = facts.shapes.of(x), facts.shapes.dtype(x)
    if x is None or shape is None or turned is None or dtype is None or last.graph is not node.graph:
        return None
    rank = len(shape)
    order, back = _permutation(first, rank), _permutation(last, rank)
    if tuple(order[k] for k in back) != tuple(range(rank)):
        return None
    begins = node.attributes.get_int("axis", -1) % rank
    if not all(isinstance(n, int) for n in turned[begins:]):
        return None
    found = [_parameter(facts, v, order, rank, dtype) for v in node.inputs[1:] if v is not None]
    parameters = [p for p in found if p is not None]
    if not parameters or len(parameters) < len(found):
        return None
    scale, bias = parameters[0], parameters[1] if len(parameters) > 1 else 0.0
    axes = tuple(sorted(order[begins:]))
    if any(p.shape[k] != 1 for p in parameters for k in range(rank) if k not in axes):
        return None  # onnxruntime also takes a scale that varies over other axes
    epsilon = float(np.float32(node.attributes.get_float("epsilon", 1e-5)))
    kind, spelled = _KINDS[node.op_type], (first, node, last)
    return Norm(kind, x, last.outputs[0], shape, axes, epsilon, scale, bias, dtype, spelled)


def _is_transpose(node: ir.Node) -> bool:
    return node.op_type == "Transpose" and node.domain == ""


def _only_reader(node: ir.Node) -> ir.Node | None:
    """The node that alone reads a node of one output."""
    y, *others = node.outputs
    readers = y.uses()
    if y.is_graph_output() or len(readers) != 1 or any(o.uses() or o.is_graph_output() for o in others):
        return None
    return next(iter(readers)).node


def _permutation(node: ir.Node, rank: int) -> tuple[int, ...]:
    return tuple(node.attributes.get_ints("perm", tuple(reversed(range(rank)))))


def _parameter(
    facts: Facts, value: ir.Value, order: tuple[int, ...], rank: int, dtype: ir.DataType
) -> Array | None:
    """Scale or bias in the order of the axes before the first Transpose; None where it is not constant."""
    array = facts.constants.get(value)
    if array is None or array.ndim > rank or facts.shapes.dtype(value) != dtype:
        return None
    wide = array.astype(np.float64).reshape((1,) * (rank - array.ndim) + array.shape)
    return wide.transpose([int(k) for k in np.argsort(order)])
