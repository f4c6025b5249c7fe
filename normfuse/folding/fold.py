"""Fold every constant per-channel affine into the linear operators beside it, to a fixpoint.

Behind first, from the last affine of each chain, so that a chain is folded at once and rounded once; what is
left is tried in front. Every BatchNormalization that stays has a reason, and so has a scale and shift behind
a linear operator that looks like a split one; a lone Mul or Add elsewhere is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from normfuse.folding import apply, behind, elementwise, front
from normfuse.folding.chains import Excluded, merge_chains
from normfuse.folding.constant import fold_constants
from normfuse.folding.plan import FoldRecord, Kind, Plan
from normfuse.folding.reach import Reach
from normfuse.folding.stop import Stop
from normfuse.graph.facts import Facts
from normfuse.norms.refusal import Refusal

MAX_COPY, MAX_REWRITE = 1 << 20, 1 << 26
"""What a lone Mul or Add is worth: bytes of shared weights to copy, bytes of weights to write anew.

Beside a linear operator with more weights than that, its own time does not show.
"""


def fold_all(facts: Facts, excluded: Excluded) -> tuple[list[FoldRecord], list[Refusal]]:
    """Find and do all folds of the model; what was done, and why the rest was left.

    excluded(kind, anchor, output name): whether a site is to be left alone, with reason "skipped".
    """
    run = _Run(facts, excluded)
    fold_constants(facts, [node for node in facts.model.graph.all_nodes() if _is_norm(node)])
    candidates = [node for node in facts.model.graph.all_nodes() if elementwise.is_affine(facts, node)]
    changed = True
    while changed:
        run.stops.clear()
        changed = run.sweep(reversed(candidates), Reach(facts).behind, behind.find)
        candidates = [node for node in candidates if node.graph is not None]
        changed = run.sweep(candidates, Reach(facts).front, front.find) or changed
        candidates = [node for node in candidates if node.graph is not None]
    merged = merge_chains(facts, candidates, excluded)
    return [*run.done(), *merged], run.refusals()


@dataclass
class _Run:
    """The state of one run over a model."""

    facts: Facts
    excluded: Excluded
    records: dict[str, FoldRecord] = field(default_factory=dict)
    stops: dict[ir.Node, tuple[Kind, Stop]] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    def sweep(
        self,
        nodes: Iterable[ir.Node],
        promising: Callable[[ir.Node], bool],
        find: Callable[[Facts, ir.Node], Plan | Stop],
    ) -> bool:
        """Try every node once; whether anything was folded."""
        folded = False
        for node in nodes:
            if node.graph is None or not (_is_norm(node) or promising(node)):
                continue
            plan = find(self.facts, node)
            if isinstance(plan, Stop):
                self._note(node, "BatchNorm", plan)
            elif (stop := self._fold(plan)) is not None:
                self._note(plan.anchor, plan.kind, stop)
            else:
                folded = True
        return folded

    def _note(self, node: ir.Node, kind: Kind, stop: Stop) -> None:
        """Remember why a candidate is left: the first reason that says more than that nothing is near."""
        if not _is_norm(node) and not stop.reached:
            return
        if node not in self.stops or self.stops[node][1].reason == "no-linear-neighbour" != stop.reason:
            self.stops[node] = kind, stop

    def _fold(self, plan: Plan) -> Stop | None:
        """Do what was found; None when it was done."""
        output = plan.output.name or ""
        if self.excluded(plan.kind, plan.anchor, output):
            return Stop("skipped", reached=True)
        if plan.kind == "Affine":
            rewritten, copied = apply.cost(self.facts, plan)
            if copied > MAX_COPY or rewritten > MAX_REWRITE:
                return Stop("extra-consumer", "new weights would cost more than the operator does")
        new = apply.numbers(self.facts, plan)
        if isinstance(new, Stop):
            return replace(new, reached=plan.kind == "BatchNorm")
        gone = [v.name or "" for v in (*plan.changed, *(step.node.outputs[0] for step in plan.steps))]
        inner = [self.records.pop(name) for name in (*gone, output) if name in self.records]
        record = _record(plan, output, max(numbers.rounding for numbers in new))
        if not plan.behind:
            self.inputs.update((name, record.input) for name in gone)
        grown, removed = apply.perform(self.facts, plan, new)
        self.records[output] = _with(record, grown, removed, inner)
        return None

    def done(self) -> list[FoldRecord]:
        """All records; one whose input another fold has moved starts where that one does."""
        return [replace(record, input=self._start(record.input)) for record in self.records.values()]

    def _start(self, name: str) -> str:
        while name in self.inputs:
            name = self.inputs[name]
        return name

    def refusals(self) -> list[Refusal]:
        """Why what is still there was left."""
        return [
            Refusal(kind, stop.reason, node, stop.detail)
            for node, (kind, stop) in self.stops.items()
            if node.graph is not None
        ]


def _is_norm(node: ir.Node) -> bool:
    return node.op_type == "BatchNormalization"


def _record(plan: Plan, output: str, rounding: float) -> FoldRecord:
    """What will be reported of a plan; names are read before the fold changes them."""
    return FoldRecord(
        kind=plan.kind,
        anchor=plan.anchor.name or plan.anchor.outputs[0].name or "",
        input=plan.input.name or "",
        output=output,
        spelling=plan.spelling,
        operator=plan.operators,
        nodes_replaced=0,
        rounding=rounding,
        added_bytes=0,
        detail="",
    )


def _with(record: FoldRecord, grown: int, removed: int, inner: Iterable[FoldRecord]) -> FoldRecord:
    """The record of a fold that was done, with those of earlier folds that it has gone over again."""
    rounding = record.rounding
    for earlier in inner:
        grown, removed = grown + earlier.added_bytes, removed + earlier.nodes_replaced
        rounding = max(rounding, earlier.rounding)
        kind: Kind = "BatchNorm" if "BatchNorm" in (earlier.kind, record.kind) else "Affine"
        record = replace(record, kind=kind, spelling=f"{record.spelling}, {earlier.spelling}")
    detail = f"worst rounding {rounding:.1e} of a channel's largest weight"
    if grown > 0:
        detail += f", {grown} bytes of constants added"
    return replace(record, rounding=rounding, added_bytes=grown, nodes_replaced=removed, detail=detail)
