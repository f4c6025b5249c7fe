"""Find every normalization of a graph, and say of every look-alike why it is none.

For each reduction, from the earliest value that its statistic may be of: walk, judge every value of the
walk, choose the ends. LayerNorm comes before RMSNorm by itself: the base of the mean lies before that of
the variance, so an RMSNorm of a centred value is only taken where the whole is no LayerNorm.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from normfuse.algebra.frame import Traced
from normfuse.algebra.memory import Memory
from normfuse.algebra.operators.layout import LAYOUT
from normfuse.algebra.walk import Ending, Walk, node_order, walk
from normfuse.graph.facts import Facts
from normfuse.norms.candidates import FUSED_NORMS, bases
from normfuse.norms.ends import choose, escaping, is_worth_it
from normfuse.norms.families import Rejection, classify
from normfuse.norms.forms import Form, NearMiss, has_root, recognise
from normfuse.norms.group_operator import from_operator
from normfuse.norms.norm import Norm
from normfuse.norms.refusal import Refusal
from normfuse.norms.statistics import statistics_read
from normfuse.norms.surroundings import downstream, is_over_one_element, leads_to_a_root

# Endings that tell why a chain which looked like a normalization is none, best first.
_TELLING = (
    "keepdims=0",
    "exponent-not-constant",
    "exponent!=2",
    "overridable-initializer",
    "qdq-boundary",
    "axes-differ",
    "too-complex",
)
# Reasons for which an affine stays outside of a fused core.
_OUTSIDE = ("affine-expands-shape", "affine-not-normalized-axes", "overridable-initializer", "precision")
# A scale that is computed at run time; behind a norm with a scale of its own, a residual looks the same.
_MODULATION = "affine-not-constant"


@dataclass
class Findings:
    """The normalizations of one graph, and the candidates that are left."""

    norms: list[Norm] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


@dataclass(frozen=True)
class _Judged:
    """A walk with what each of its values was judged to be.

    What follows from it is found once: thousands of reductions may read one value.
    """

    walk: Walk
    norms: dict[ir.Value, Norm]
    rejected: dict[ir.Value, Rejection | NearMiss]

    @functools.cached_property
    def ends(self) -> list[ir.Value]:
        """The values that must exist as outputs of fused norms."""
        return choose(self.walk, self.norms)

    @functools.cached_property
    def spelled(self) -> dict[ir.Node, None]:
        """The nodes that compute them, in the order of the ends."""
        return dict.fromkeys(n for end in self.ends for n in self.norms[end].spelled)

    @functools.cached_property
    def nodes(self) -> frozenset[ir.Node]:
        """All nodes that the walk has seen."""
        inside = {p for v in self.walk.traced if (p := v.producer()) is not None}
        return frozenset(inside | {e.node for e in self.walk.endings})

    @functools.cached_property
    def told(self) -> Refusal | None:
        """The most telling of the reasons why it is no normalization."""
        return _best_reason(self)


def find(facts: Facts, graph: ir.Graph) -> Findings:
    """Normalizations of one graph; bodies of If, Loop and Scan are graphs of their own."""
    search = _Search(facts, graph)
    for reduction, values in bases(facts, graph):
        search.consider(reduction, values)
    for node in graph:
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
        self.walked: dict[ir.Value, _Judged | None] = {}
        self.claimed: set[ir.Node] = set()
        self.settled: set[ir.Node] = set()
        self.explained: set[ir.Node] = set()

    def consider(self, reduction: ir.Node, values: list[ir.Value]) -> None:
        """Look for sites whose statistic is this reduction, unless a site has it already."""
        judged: list[_Judged] = []
        for value in values:
            if reduction in self.claimed or reduction in self.settled:
                return
            if value not in self.walked:
                self.walked[value] = self._judge(value)
            found = self.walked[value]
            if found is not None and self._accept(found, reduction):
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

    def _judge(self, base: ir.Value) -> _Judged | None:
        found = walk(self.facts, base, self.order, self.memory)
        if found is None:
            return None
        norms: dict[ir.Value, Norm] = {}
        rejected: dict[ir.Value, Rejection | NearMiss] = {}
        for value, traced in found.traced.items():
            verdict = _verdict(found, value, traced)
            if isinstance(verdict, Form):
                norm = classify(self.facts, found, value, verdict)
                if isinstance(norm, Norm):
                    norms[value] = norm
                else:
                    rejected[value] = norm
            elif verdict is not None:
                rejected[value] = verdict
        return _Judged(found, norms, rejected)

    def _accept(self, found: _Judged, reduction: ir.Node) -> bool:
        """Take the sites of a walk; whether they settle what this reduction is for."""
        ends, spelled = found.ends, found.spelled
        if reduction not in spelled or any(n in self.claimed for n in spelled):
            return False
        if not any(n.op_type not in FUSED_NORMS and n.op_type not in LAYOUT for n in spelled):
            self.claimed.update(spelled)  # fused already, but for views
            return True
        kept = escaping(ends, sorted(spelled, key=self.order.__getitem__))
        if kept and len(ends) == 1 and self._take_with_statistics(found, ends[0]):
            return True
        if not is_worth_it(found.walk, ends, spelled, kept):
            self._refuse_escape(found, ends, kept)
            return True
        self._take(dataclasses.replace(found.norms[end], outside=self._outside(found, end)) for end in ends)
        return True

    def _take_with_statistics(self, found: _Judged, end: ir.Value) -> bool:
        """Take a site whose mean or deviation is read outside, if that is all that would have to stay."""
        norm = found.norms[end]
        read = statistics_read(found.walk, norm, self.order)
        producers = {p for value in read.values() if (p := value.producer()) is not None}
        nodes = sorted({*norm.spelled, *producers}, key=self.order.__getitem__)
        kept = escaping({end, *read.values()}, nodes) if read else set(nodes)
        if kept:
            return False
        outside = self._outside(found, end)
        self._take([dataclasses.replace(norm, spelled=tuple(nodes), statistics=read, outside=outside)])
        return True

    def _take(self, norms: Iterable[Norm]) -> None:
        for norm in norms:
            self.claimed.update(norm.spelled)
            self.findings.norms.append(norm)

    def _refuse_escape(self, found: _Judged, ends: list[ir.Value], kept: set[ir.Node]) -> None:
        spelled = {n for end in ends for n in found.norms[end].spelled}
        self.settled.update(spelled)
        if not kept or all(n.op_type in FUSED_NORMS for n in kept):
            return
        read = [n for n in sorted(kept, key=self.order.__getitem__) if _is_read_beside(n, spelled)]
        names = ", ".join(repr(n.outputs[0].name) for n in read)
        node = ends[-1].producer()
        assert node is not None
        self.findings.refusals.append(
            Refusal(found.norms[ends[-1]].kind, "extra-consumer", node, f"used elsewhere as well: {names}")
        )

    def _outside(self, found: _Judged, end: ir.Value) -> str | None:
        """Why the affine behind a fused core stays outside of it, where one does."""
        bare = found.norms[end].is_bare
        for consumer in end.consumers():
            verdict = found.rejected.get(consumer.outputs[0])
            if verdict is not None and (
                verdict.reason in _OUTSIDE or (bare and verdict.reason == _MODULATION)
            ):
                return verdict.reason
            for ending in found.walk.endings:
                if ending.node is consumer and ending.reason in _OUTSIDE:
                    return ending.reason
        return None

    def _explain(self, judged: list[_Judged]) -> None:
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


def _verdict(found: Walk, value: ir.Value, traced: Traced) -> Form | NearMiss | None:
    """What the polynomial of a value is, found once for all walks that share it."""
    state = found.states.get(value)
    if state is None:
        return recognise(found.frame, traced.polynomial)
    if state.verdict is None:
        state.verdict = (recognise(state.frame, traced.polynomial),)
    return state.verdict[0]


def _best_reason(found: _Judged) -> Refusal | None:
    """The most telling of what was found: a rejected normalization, a near miss, an ending."""
    rejected = list(found.rejected.items())
    for value, verdict in reversed(rejected):
        node = value.producer()
        if isinstance(verdict, Rejection) and node is not None:
            return Refusal(verdict.kind, verdict.reason, node, verdict.detail)
    for ending in sorted(found.walk.endings, key=_rank):
        if ending.reason in _TELLING and (
            leads_to_a_root(ending.node) or _reads_a_root(found.walk, ending.node)
        ):
            kind = "LayerNorm" if ending.reason == "keepdims=0" else "RMSNorm"
            return Refusal(kind, ending.reason, ending.node, ending.detail)
    for value, verdict in reversed(rejected):
        node = value.producer()
        if node is not None and isinstance(verdict, NearMiss) and verdict.reason != "not-a-normalization":
            return Refusal(verdict.kind, verdict.reason, node, verdict.detail)
    return None


def _is_read_beside(node: ir.Node, spelled: set[ir.Node]) -> bool:
    """Whether a node of a site is read by something else than nodes of the site."""
    return any(
        out.is_graph_output() or any(reader not in spelled for reader in out.consumers())
        for out in node.outputs
    )


def _reads_a_root(found: Walk, node: ir.Node) -> bool:
    """Whether an operand is the root of a statistic."""
    traced = (found.traced[v] for v in node.inputs if v is not None and v in found.traced)
    return any(has_root(found.frame.algebra, t.polynomial) for t in traced)


def _rank(ending: Ending) -> int:
    return _TELLING.index(ending.reason) if ending.reason in _TELLING else len(_TELLING)
