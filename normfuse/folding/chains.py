"""Affines in a row that fold into nothing: made as few as they can be.

x -> BatchNormalization -> Mul -> Add     one BatchNormalization with another gamma and beta
x -> Mul -> Add -> Mul                    Mul, Add
x -> Mul -> Add, per channel              one BatchNormalization, on targets where that is faster
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import onnx_ir as ir

from normfuse.folding import elementwise
from normfuse.folding.affine import Affine, Array, trimmed
from normfuse.folding.elementwise import Step
from normfuse.folding.ledger import Ledger
from normfuse.folding.plan import FoldRecord, anchor_of, sole_reader
from normfuse.folding.reach import NORMS
from normfuse.folding.weights import max_bias
from normfuse.graph import surgery
from normfuse.graph.facts import Facts

Excluded = Callable[[str, ir.Node, str], bool]


@dataclass(frozen=True)
class Chain:
    """Affines in a row that only each other read, and what they come to.

    position: which input of the first is its data; what stands there may change with other chains.
    """

    steps: tuple[Step, ...]
    affine: Affine
    position: int

    @property
    def data(self) -> ir.Value:
        """What the first of them reads."""
        value = self.steps[0].node.inputs[self.position]
        assert value is not None
        return value

    @property
    def output(self) -> ir.Value:
        """The value whose name survives."""
        return self.steps[-1].node.outputs[0]


def merge_chains(facts: Facts, nodes: Sequence[ir.Node], excluded: Excluded, ledger: Ledger) -> bool:
    """Make every chain of affines among `nodes` (in graph order) as short as it can be; whether any was."""
    return _rewrite(facts, _chains(facts, nodes, _is_long), excluded, _merge, ledger)


def rejoin(facts: Facts, excluded: Excluded) -> list[FoldRecord]:
    """Make a BatchNormalization of every Mul and Add per channel of an image that is left.

    For targets that compute it in one pass: onnxruntime's CPU provider is some 1.5 times faster with it.
    """
    nodes = [node for node in facts.model.graph.all_nodes() if elementwise.is_affine(facts, node)]
    ledger = Ledger()
    _rewrite(facts, _chains(facts, nodes, lambda row: True), excluded, _rejoin, ledger)
    return ledger.records()


def _rewrite(
    facts: Facts,
    chains: Sequence[Chain],
    excluded: Excluded,
    rewrite: Callable[[Facts, Chain], Sequence[ir.Node]],
    ledger: Ledger,
) -> bool:
    """Let `rewrite` change the chains; it returns the nodes that stand there now, none where it did not."""
    changed = False
    for chain in chains:
        anchor, output = anchor_of(chain.steps), ledger.output(chain.output)
        name, begins = anchor.name or output, ledger.input(chain.data)
        if excluded("Affine", anchor, output):
            continue
        gone = [step.node.outputs[0].name or "" for step in chain.steps]
        nodes = rewrite(facts, chain)
        if not nodes:
            continue
        changed = True
        spelling, operators = (
            " ".join(node.op_type for node in row) for row in ([s.node for s in chain.steps], nodes)
        )
        detail = f"{len(chain.steps)} affines in a row became {len(nodes)}"
        record = FoldRecord(
            "Affine", name, begins, output, spelling, operators, len(gone) - len(nodes), 0.0, 0, detail
        )
        ledger.enter(record, gone, [node.outputs[0] for node in nodes[:-1]], moves_input=False)
    return changed


def _chains(
    facts: Facts, nodes: Sequence[ir.Node], worth: Callable[[Sequence[ir.Node]], bool]
) -> list[Chain]:
    """All maximal chains of two affines or more; constants are read of those that are `worth` it."""
    chains: list[Chain] = []
    taken: set[ir.Node] = set()
    for node in nodes:
        row = [] if node in taken else _row(facts, node)
        taken.update(row)
        if len(row) < 2 or not worth(row):
            continue
        steps = [step for node in row if isinstance(step := elementwise.read(facts, node), Step)]
        if len(steps) == len(row):
            total = reduce(Affine.then, (step.affine for step in steps))
            position = steps[0].node.inputs.index(steps[0].data)
            chains.append(Chain(tuple(steps), total, position))
    return chains


def _row(facts: Facts, node: ir.Node) -> list[ir.Node]:
    """`node` and the affines behind it that only each other read; none where it is a norm's own."""
    data = elementwise.data_of(facts, node)
    producer = None if data is None else data.producer()
    if producer is not None and producer.op_type in NORMS:
        return []
    row = [node]
    while (following := sole_reader(row[-1].outputs[0])) is not None:
        if not elementwise.is_affine(facts, following):
            break
        row.append(following)
    return row


def _is_long(row: Sequence[ir.Node]) -> bool:
    """Whether fewer operators could do: a scale and a shift alone are as few as they can be."""
    operators = [node.op_type for node in row]
    scales = sum(op in ("Mul", "Div", "Neg") for op in operators)
    return "BatchNormalization" in operators or scales > 1 or len(operators) - scales > 1


def _merge(facts: Facts, chain: Chain) -> Sequence[ir.Node]:
    norm = next((step for step in chain.steps if step.node.op_type == "BatchNormalization"), None)
    if norm is not None:
        return _merge_into_norm(facts, chain, norm.node)
    affine, dtype = chain.affine, facts.shapes.dtype(chain.output)
    wanted = [("Mul", affine.scale)] * affine.scales + [("Add", affine.shift)] * affine.moves
    if not 0 < len(wanted) < len(chain.steps) or _may_overflow(chain, dtype):
        return ()
    constants = [(op, _rounded(array, dtype)) for op, array in wanted]
    if any(array is None for _, array in constants):
        return ()
    stem = chain.steps[-1].node.name or chain.output.name
    value, nodes = chain.data, []
    for op, array in constants:
        assert array is not None
        wish = f"{stem}/{op.lower()}"
        constant = surgery.add_constant(facts, trimmed(array), wish)
        nodes.append(ir.node(op, [value, constant], name=facts.names.node(wish)))
        value = nodes[-1].outputs[0]
        value.name = facts.names.value(f"{wish}_output")
        value.type, value.shape = chain.output.type, chain.output.shape
        facts.shapes.same_as(value, chain.output)
    surgery.replace(facts, chain.output, nodes, value)
    return nodes


def _may_overflow(chain: Chain, dtype: ir.DataType | None) -> bool:
    """Whether the product before the new shift may overflow where those before the old shifts did not."""
    known = max(float(np.abs(step.affine.shift).max(initial=0)) for step in chain.steps)
    largest = float(np.abs(chain.affine.shift).max(initial=0))
    return dtype is None or largest > max(max_bias(dtype), known)


def _merge_into_norm(facts: Facts, chain: Chain, norm: ir.Node) -> Sequence[ir.Node]:
    """Gamma and beta take in the rest; mean, variance and epsilon stay what they are."""
    mean, variance = (facts.constants.get(norm.inputs[k]) for k in (3, 4))
    if mean is None or variance is None or mean.ndim != 1 or chain.affine.varies() - {1}:
        return ()
    scale, shift = (
        np.broadcast_to(a.reshape(-1), mean.shape) for a in (chain.affine.scale, chain.affine.shift)
    )
    epsilon = elementwise.epsilon_of(norm)
    gamma = _rounded(
        scale * np.sqrt(variance.astype(np.float64) + epsilon), facts.shapes.dtype(norm.inputs[1])
    )
    beta = _rounded(shift + mean.astype(np.float64) * scale, facts.shapes.dtype(norm.inputs[2]))
    if gamma is None or beta is None:
        return ()
    data, output, stem = chain.data, chain.output, norm.name or chain.output.name
    surgery.set_constant(facts, norm, 1, gamma, f"{stem}/scale")
    surgery.set_constant(facts, norm, 2, beta, f"{stem}/bias")
    norm.replace_input_with(0, data)
    if norm.outputs[0] is not output:
        surgery.supersede(facts, output, norm.outputs[0])
    surgery.remove_dead(facts, [step.node for step in reversed(chain.steps) if step.node is not norm])
    return (norm,)


def _rejoin(facts: Facts, chain: Chain) -> Sequence[ir.Node]:
    affine = chain.affine
    shape = facts.shapes.of(chain.data)
    if facts.opset < 9 or facts.shapes.dtype(chain.data) != ir.DataType.FLOAT or shape is None:
        return ()
    if len(shape) != 4 or not isinstance(shape[1], int) or affine.varies() != {1}:
        return ()
    if affine.scale.size == 1 or affine.shift.size == 1 or any(_is_norm(step.node) for step in chain.steps):
        return ()
    scale, shift = (_rounded(array.reshape(-1), ir.DataType.FLOAT) for array in (affine.scale, affine.shift))
    if scale is None or shift is None:
        return ()
    stem = chain.steps[-1].node.name or chain.output.name
    rest = (np.zeros_like(scale), np.ones_like(scale))
    names = ("scale", "bias", "mean", "variance")
    constants = [surgery.add_constant(facts, array, f"{stem}/{name}")
                 for array, name in zip((scale, shift, *rest), names, strict=True)]  # fmt: skip
    node = ir.node("BatchNormalization", [chain.data, *constants], {"epsilon": 0.0},
                   name=facts.names.node(f"{stem}/norm"))  # fmt: skip
    surgery.replace(facts, chain.output, [node], node.outputs[0])
    return (node,)


def _is_norm(node: ir.Node) -> bool:
    return node.op_type == "BatchNormalization"


def _rounded(array: Array, dtype: ir.DataType | None) -> Array | None:
    """`array` in the data type of the operator; None where it does not fit there as a normal number."""
    if dtype is None:
        return None
    with np.errstate(all="ignore"):
        result: Array = array.astype(dtype.numpy())
        back = result.astype(np.float64)
    off = np.abs(back - array) > np.abs(array) * 2.0**-7
    return None if not np.isfinite(back).all() or bool(off.any()) else result
