"""What the values of one walk are judged to be: normalizations, or why they are none.

A value is judged when it is asked for, and once: of a chain that ends in a normalization only the end is,
and thousands of reductions may read one value.
"""

from __future__ import annotations

import functools

import onnx_ir as ir

from normfuse.algebra.walk import Ending, Walk
from normfuse.graph.facts import Facts
from normfuse.norms.ends import choose
from normfuse.norms.families import Rejection, classify
from normfuse.norms.forms import Form, NearMiss, has_root, recognise
from normfuse.norms.norm import Norm
from normfuse.norms.refusal import Refusal
from normfuse.norms.surroundings import leads_to_a_root

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


class Judgement:
    """A walk, and what its values are.

    ends: the values that must exist as outputs of fused norms, in graph order.
    spelled: the nodes that compute them, in the order of the ends.
    """

    def __init__(self, facts: Facts, walk: Walk) -> None:
        self.walk = walk
        self._facts = facts
        self._known: dict[ir.Value, Norm | Rejection | NearMiss | None] = {}
        self.ends: dict[ir.Value, Norm] = choose(walk, self.norm)
        self.spelled = dict.fromkeys(node for norm in self.ends.values() for node in norm.spelled)

    def norm(self, value: ir.Value) -> Norm | None:
        """The normalization that a value is, if it is one."""
        found = self._of(value)
        return found if isinstance(found, Norm) else None

    def objection(self, value: ir.Value) -> Rejection | NearMiss | None:
        """Why a value that looks like a normalization is none, or must not be rewritten."""
        found = self._of(value)
        return None if isinstance(found, Norm) else found

    def _of(self, value: ir.Value) -> Norm | Rejection | NearMiss | None:
        if value not in self._known:
            verdict = self._verdict(value) if value in self.walk.traced else None
            if isinstance(verdict, Form):
                self._known[value] = classify(self._facts, self.walk, value, verdict)
            else:
                self._known[value] = verdict
        return self._known[value]

    def _verdict(self, value: ir.Value) -> Form | NearMiss | None:
        """What the polynomial of a value is, found once for all walks that share it."""
        polynomial = self.walk.traced[value].polynomial
        state = self.walk.states.get(value)
        if state is None:
            return recognise(self.walk.frame, polynomial)
        if state.verdict is None:
            state.verdict = (recognise(state.frame, polynomial),)
        verdict: Form | NearMiss | None = state.verdict[0]
        return verdict

    @functools.cached_property
    def nodes(self) -> frozenset[ir.Node]:
        """All nodes that the walk has seen."""
        inside = {p for v in self.walk.traced if (p := v.producer()) is not None}
        return frozenset(inside | {e.node for e in self.walk.endings})

    @functools.cached_property
    def told(self) -> Refusal | None:
        """The most telling of the reasons why it is no normalization: rejected, cut short, or a near miss."""
        objections = ((value.producer(), self.objection(value)) for value in self.walk.traced)
        rejected = [(node, found) for node, found in objections if found is not None]
        return _rejected(rejected) or self._cut_short() or _near_miss(rejected)

    def _cut_short(self) -> Refusal | None:
        for ending in sorted(self.walk.endings, key=_rank):
            if ending.reason in _TELLING and (
                leads_to_a_root(ending.node) or _reads_a_root(self.walk, ending.node)
            ):
                kind = "LayerNorm" if ending.reason == "keepdims=0" else "RMSNorm"
                return Refusal(kind, ending.reason, ending.node, ending.detail)
        return None


_Rejected = list[tuple[ir.Node | None, Rejection | NearMiss]]


def _rejected(found: _Rejected) -> Refusal | None:
    for node, verdict in reversed(found):
        if isinstance(verdict, Rejection) and node is not None:
            return Refusal(verdict.kind, verdict.reason, node, verdict.detail)
    return None


def _near_miss(found: _Rejected) -> Refusal | None:
    for node, verdict in reversed(found):
        if node is not None and isinstance(verdict, NearMiss) and verdict.reason != "not-a-normalization":
            return Refusal(verdict.kind, verdict.reason, node, verdict.detail)
    return None


def _reads_a_root(found: Walk, node: ir.Node) -> bool:
    """Whether an operand is the root of a statistic."""
    traced = (found.traced[v] for v in node.inputs if v is not None and v in found.traced)
    return any(has_root(found.frame.algebra, t.polynomial) for t in traced)


def _rank(ending: Ending) -> int:
    return _TELLING.index(ending.reason) if ending.reason in _TELLING else len(_TELLING)
