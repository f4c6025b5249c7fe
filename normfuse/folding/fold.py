"""Fold every constant per-channel affine into the linear operators beside it, to a fixpoint.

Behind first, from the last affine of each chain, so that a chain is folded at once and rounded once; what is
left is tried in front, and affines in a row that are left become one. Every BatchNormalization that stays has
a reason, and so has a scale and shift behind a linear operator that looks like a split one; a lone Mul or Add
elsewhere is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from normfuse.folding import apply, behind, elementwise, front
from normfuse.folding.biases import settle_biases
from normfuse.folding.chains import Excluded, merge_chains
from normfuse.folding.constant import fold_constants
from normfuse.folding.ledger import Ledger
from normfuse.folding.plan import FoldRecord, Kind, Plan
from normfuse.folding.reach import Reach, is_of_a_norm
from normfuse.folding.stop import Stop
from normfuse.graph.facts import Facts
from normfuse.graph.surgery import remove_orphans
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
    fold_constants(facts, excluded, run.ledger)
    changed = True
    while changed:
        run.stops.clear()
        candidates = [node for node in facts.model.graph.all_nodes() if elementwise.is_affine(facts, node)]
        changed = run.sweep(reversed(candidates), Reach(facts).behind, behind.find)
        candidates = [node for node in candidates if node.graph is not None]
        changed = run.sweep(candidates, Reach(facts).front, front.find) or changed
        candidates = [node for node in candidates if node.graph is not None]
        changed = merge_chains(facts, candidates, excluded, run.ledger) or changed
    records = run.ledger.records()
    if records:
        settle_biases(facts)
    remove_orphans(facts)
    return records, run.refusals()


@dataclass
class _Run:
    """The state of one run over a model."""

    facts: Facts
    excluded: Excluded
    ledger: Ledger = field(default_factory=Ledger)
    stops: dict[ir.Node, tuple[Kind, Stop]] = field(default_factory=dict)

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
            if is_of_a_norm(self.facts, node):
                continue
            plan = find(self.facts, node)
            if isinstance(plan, Stop):
                self._note(node, "BatchNorm", plan)
            elif (stop := self._fold(plan)) is not None:
                self._note(plan.anchor, plan.kind, stop)
            else:
                folded = True
        return folded

    def refusals(self) -> list[Refusal]:
        """Why what is still there was left."""
        return [
            Refusal(kind, stop.reason, node, stop.detail)
            for node, (kind, stop) in self.stops.items()
            if node.graph is not None
        ]

    def _note(self, node: ir.Node, kind: Kind, stop: Stop) -> None:
        """Remember why a candidate is left: the first reason that says more than that nothing is near."""
        if not _is_norm(node) and not stop.reached:
            return
        if node not in self.stops or self.stops[node][1].reason == "no-linear-neighbour" != stop.reason:
            self.stops[node] = kind, stop

    def _fold(self, plan: Plan) -> Stop | None:
        """Do what was found; None when it was done."""
        output = self.ledger.output(plan.output)
        if self.excluded(plan.kind, plan.anchor, output):
            return Stop("skipped", reached=True)
        if plan.kind == "Affine":
            rewritten, copied = apply.cost(self.facts, plan)
            if copied > MAX_COPY or rewritten > MAX_REWRITE:
                return Stop("extra-consumer", "new weights would cost more than the operator does")
        new = apply.numbers(self.facts, plan)
        if isinstance(new, Stop):
            return Stop(new.reason, new.detail, reached=plan.kind == "BatchNorm")
        gone = [value.name or "" for value in (*plan.changed, *(step.node.outputs[0] for step in plan.steps))]
        anchor = plan.anchor.name or plan.anchor.outputs[0].name or ""
        begins = self.ledger.input(plan.input)
        done = apply.perform(self.facts, plan, new)
        rounding = max(numbers.rounding for numbers in new)
        record = FoldRecord(plan.kind, anchor, begins, output, plan.spelling, plan.operators, done.removed,
                            rounding, done.grown)  # fmt: skip
        self.ledger.enter(record, gone, done.changed, moves_input=not plan.behind)
        return None


def _is_norm(node: ir.Node) -> bool:
    return node.op_type == "BatchNormalization"
