"""Find every normalization of a graph, and say of every look-alike why it is none.

For each reduction, from the earliest value that its statistic may be of: walk, judge the values at which the
walk ends, choose the ends of sites. LayerNorm comes before RMSNorm by itself: the base of the mean lies
before that of the variance, so an RMSNorm of a centred value is only taken where the whole is no LayerNorm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from normfuse.algebra.memory import Memory
from normfuse.algebra.operators.layout import LAYOUT
from normfuse.algebra.walk import node_order, walk
from normfuse.graph.facts import Facts
from normfuse.norms.candidates import FUSED_NORMS, bases
from normfuse.norms.ends import escaping, is_worth_it
from normfuse.norms.group_operator import from_operator
from normfuse.norms.judgement import Judgement
from normfuse.norms.norm import Norm
from normfuse.norms.refusal import Refusal
from normfuse.norms.statistics import statistics_read
from normfuse.norms.surroundings import downstream, is_over_one_element, leads_to_a_root

# Reasons for which an affine stays outside of a fused core.
_OUTSIDE = ("affine-expands-shape", "affine-not-normalized-axes", "overridable-initializer", "precision")
# A scale that is computed at run time; behind a norm with a scale of its own, a residual looks the same.
_MODULATION = "affine-not-constant"


@dataclass
class Findings:
    """The normalizations of one graph, and the candidates that are left."""

    norms: list[Norm] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def find(facts: Facts, graph: ir.Graph) -> Findings:
    """Normalizations of one graph; bodies of If, Loop and Scan are graphs of their own."""
    search = _Search(facts, graph)
    for reduction, values in bases(facts, search.order):
        search.consider(reduction, values)
    for node in search.order:
        norm = from_operator(facts, node)
        if norm is not None:
            search.findings.norms.append(norm)
    found = search.findings
    return Findings(found.norms, [r for r in found.refusals if r.node not in search.claimed])


class _Search:
    def __init__(self, facts: Facts, graph: ir.Graph) -> None:
        self.facts = facts
        self.order = node_order(graph)
        self.memory = Memory(facts)
        self.findings = Findings()
        self.walked: dict[ir.Value, Judgement | None] = {}
        self.claimed: set[ir.Node] = set()
        self.settled: set[ir.Node] = set()
        self.explained: set[ir.Node] = set()

    def consider(self, reduction: ir.Node, values: list[ir.Value]) -> None:
        """Look for sites whose statistic is this reduction, unless a site has it already."""
        judged: list[Judgement] = []
        for value in values:
            if reduction in self.claimed or reduction in self.settled:
                return
            if value not in self.walked:
                self.walked[value] = self._judge(value)
            found = self.walked[value]
            if found is not None and self._accept(found, reduction):
                if reduction in self.claimed:
                    self.walked[value] = None  # nothing else can come of it
                return
            if found is not None:
                judged.append(found)
        if is_over_one_element(self.facts, reduction):
            self._refuse(reduction, "normalized-size-1")
        elif self.facts.shapes.of(values[-1]) is None:
            self._refuse(reduction, "unknown-shape", f"the rank of {values[-1].name!r} is not known")
        elif reduction not in self.explained:
            self._explain(judged)

    def _refuse(self, reduction: ir.Node, reason: str, detail: str = "") -> None:
        if reduction not in self.explained and leads_to_a_root(reduction):
            self.explained |= downstream([reduction])
            self.findings.refusals.append(Refusal("LayerNorm", reason, reduction, detail))

    def _judge(self, base: ir.Value) -> Judgement | None:
        found = walk(self.facts, base, self.order, self.memory)
        return None if found is None else Judgement(self.facts, found)

    def _accept(self, found: Judgement, reduction: ir.Node) -> bool:
        """Take the sites of a walk; whether they settle what this reduction is for."""
        ends, spelled = found.ends, found.spelled
        if reduction not in spelled or any(n in self.claimed for n in spelled):
            return False
        if not any(n.op_type not in FUSED_NORMS and n.op_type not in LAYOUT for n in spelled):
            self.claimed.update(spelled)  # fused already, but for views
            return True
        nodes = list(spelled) if len(ends) == 1 else sorted(spelled, key=self.order.__getitem__)
        kept = escaping(ends, nodes)
        if kept and len(ends) == 1 and self._take_with_statistics(found, *ends.values()):
            return True
        if not is_worth_it(found.walk, ends, nodes, kept):
            self._refuse_escape(list(ends.values()), kept)
            return True
        self._take(self._with_affine_outside(found, norm) for norm in ends.values())
        return True

    def _take_with_statistics(self, found: Judgement, norm: Norm) -> bool:
        """Take a site whose mean or deviation is read outside, if that is all that would have to stay."""
        read = statistics_read(found.walk, norm, self.order)
        producers = {p for value in read.values() if (p := value.producer()) is not None}
        nodes = sorted({*norm.spelled, *producers}, key=self.order.__getitem__)
        kept = escaping({norm.output, *read.values()}, nodes) if read else set(nodes)
        if kept:
            return False
        whole = dataclasses.replace(norm, spelled=tuple(nodes), statistics=read)
        self._take([self._with_affine_outside(found, whole)])
        return True

    def _take(self, norms: Iterable[Norm]) -> None:
        for norm in norms:
            self.claimed.update(norm.spelled)
            self.findings.norms.append(norm)

    def _refuse_escape(self, ends: list[Norm], kept: set[ir.Node]) -> None:
        spelled = {node for norm in ends for node in norm.spelled}
        self.settled.update(spelled)
        if not kept or all(n.op_type in FUSED_NORMS for n in kept):
            return
        read = [n for n in sorted(kept, key=self.order.__getitem__) if _is_read_beside(n, spelled)]
        names = ", ".join(repr(n.outputs[0].name) for n in read)
        node = ends[-1].output.producer()
        assert node is not None
        self.findings.refusals.append(
            Refusal(ends[-1].kind, "extra-consumer", node, f"used elsewhere as well: {names}")
        )

    def _with_affine_outside(self, found: Judgement, norm: Norm) -> Norm:
        reason = self._outside(found, norm)
        return norm if reason is None else dataclasses.replace(norm, outside=reason)

    def _outside(self, found: Judgement, norm: Norm) -> str | None:
        """Why the affine behind a fused core stays outside of it, where one does."""
        bare = norm.is_bare
        for consumer in norm.output.consumers():
            verdict = found.objection(consumer.outputs[0])
            if verdict is not None and (
                verdict.reason in _OUTSIDE or (bare and verdict.reason == _MODULATION)
            ):
                return verdict.reason
            for ending in found.walk.endings:
                if ending.node is consumer and ending.reason in _OUTSIDE:
                    return ending.reason
        return None

    def _explain(self, judged: list[Judgement]) -> None:
        """Keep one reason for a reduction that looked like that of a normalization."""
        for found in judged:
            told = found.told
            if told is None or not (
                found.nodes.isdisjoint(self.explained) and found.nodes.isdisjoint(self.claimed)
            ):
                continue
            self.explained |= found.nodes | downstream(e.node for e in found.walk.endings)
            self.findings.refusals.append(told)
            return


def _is_read_beside(node: ir.Node, spelled: set[ir.Node]) -> bool:
    """Whether a node of a site is read by something else than nodes of the site."""
    return any(
        out.is_graph_output() or any(reader not in spelled for reader in out.consumers())
        for out in node.outputs
    )
