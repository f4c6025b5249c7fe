"""From a Norm to nodes: the ways of saying it that a target has, best first.

A `Lowering` is one way: for which norms, in which operators, and how it is built. A target is an ordered list
of them. Of those that can say a norm, with kernels for its type at the model's opset, the first is the
default; a plan may ask for another, and tuning tries them all.

LayerNorm, RMSNorm, L2Norm   trailing.py     LayerNormalization, RMSNormalization, SimplifiedLayer…
the same with sigma + e      deviation.py    through the operator's second output
InstanceNorm, GroupNorm      channels.py     InstanceNormalization, on a view where there are groups
GroupNorm on CUDA            group_norm.py   com.microsoft GroupNorm
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.norms.norm import Kind, Norm
from normfuse.norms.refusal import Refusal
from normfuse.targets.building import Builder
from normfuse.targets.kernels import has_kernel, since
from normfuse.targets.plan import Plan, chosen
from normfuse.targets.skip import SKIP
from normfuse.targets.target import LAYER_NORM_OPSET, Lowered, Target


@dataclass(frozen=True)
class Lowering:
    """One way to say a norm.

    name: what plans and reports call it. kinds: of norms; none: of all.
    operator: the fused operator that a user would name; it needs a kernel, as do those of `besides`.
    when: what else must hold of the norm.
    build: emits the nodes and returns the value that stands for the norm's output.
    gives_statistics: whether it also says a norm whose mean or deviation something else reads.
    """

    name: str
    operator: str
    kinds: tuple[Kind, ...]
    build: Callable[[Builder], ir.Value]
    when: Callable[[Norm], bool] = lambda norm: True
    besides: tuple[str, ...] = ()
    gives_statistics: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        """All operators that need a kernel."""
        return (self.operator, *self.besides) if self.operator else ()

    def only(self, when: Callable[[Norm], bool]) -> Lowering:
        """The same way, for fewer norms."""
        return dataclasses.replace(self, when=lambda norm: self.when(norm) and when(norm))

    def says(self, norm: Norm) -> bool:
        """Whether it can say a norm, wherever its operators have kernels."""
        if self.kinds and (norm.kind not in self.kinds or (norm.statistics and not self.gives_statistics)):
            return False
        return self.when(norm)

    def runs(self, norm: Norm, target: Target, opset: int | None) -> bool:
        """Whether the target has kernels for it in the norm's type, at an opset (None: at any)."""
        return all(has_kernel(op, target.runtimes, norm.dtype, opset) for op in self.operators)


def _stays(builder: Builder) -> ir.Value:
    raise ValueError("a site that stays as it is spelled is not built")


AS_SPELLED = Lowering("as-spelled", "", (), _stays)
"""Leave the site as it is: what a target puts first for norms that gain nothing."""


def candidates(norm: Norm, target: Target, opset: int) -> tuple[Lowering, ...]:
    """All ways in which a target can say a norm at an opset, the default first."""
    found: dict[str, Lowering] = {}
    for way in target.lowerings:
        if way.says(norm) and way.runs(norm, target, opset):
            found.setdefault(way.name, way)
    return tuple(found.values())


def wished_opset(norm: Norm, target: Target) -> int | None:
    """The opset to which a target would raise a model for the sake of a norm; None where it would not.

    onnxruntime's own operators exist at every opset; LayerNormalization is a standard one from 17 on.
    """
    if not target.standard:
        return LAYER_NORM_OPSET if norm.kind == "LayerNorm" else None
    return _needed_opset(norm, target)


def _needed_opset(norm: Norm, target: Target) -> int | None:
    """The lowest opset at which a target has a fused form of a norm; None where it never has."""
    firsts = []
    for way in _ways(norm, target):
        opsets = [since(operator, target.runtimes, norm.dtype) for operator in way.operators]
        if None not in opsets:
            firsts.append(max(k for k in opsets if k is not None))
    return min(firsts, default=None)


def _ways(norm: Norm, target: Target) -> list[Lowering]:
    return [w for w in target.lowerings if w.name != AS_SPELLED.name and w.says(norm)]


def lower(
    facts: Facts,
    norm: Norm,
    x: ir.Value,
    target: Target,
    possible: Sequence[Lowering],
    choice: Lowering | None = None,
) -> Lowered | Refusal:
    """Nodes that compute `norm` from `x` on a target, not yet in the graph; or why there are none.

    x: the value that stands for `norm.input` now. possible: its `candidates`. choice: one of them; None: the
    default.
    """
    way = choice or next(iter(possible), AS_SPELLED)
    if way.name == AS_SPELLED.name:
        return _why_not(norm, target, facts.opset, possible, choice)
    builder = Builder(facts, norm, x, target.runtimes)
    output = way.build(builder)
    for node in builder.nodes:
        if node.domain:
            facts.model.opset_imports.setdefault(node.domain, 1)
    return Lowered(tuple(builder.nodes), output, way.operator, way.name, tuple(builder.besides))


def discard(facts: Facts, lowered: Lowered) -> None:
    """Take back what was built for a site and is not wanted: constants that were made for it go as well."""
    for node in lowered.nodes:
        for k, value in enumerate(node.inputs):
            node.replace_input_with(k, None)
            if value is not None and value.is_initializer():
                facts.orphans[value] = None


def choose(norm: Norm, target: Target, possible: Sequence[Lowering], plan: Plan) -> Lowering | None:
    """The lowering that a plan wants for a norm; UsageError where it cannot be said so.

    None where the plan says nothing of it, or wants what only shows in the graph (see skip.py).
    """
    names: dict[str, Lowering | None] = {way.name: way for way in possible}
    if target.skips_residuals:
        names[SKIP] = None
    name = chosen(plan, norm.output.name or "", names)
    return None if name is None else names[name]


def _why_not(
    norm: Norm, target: Target, opset: int, possible: Sequence[Lowering], choice: Lowering | None
) -> Refusal:
    """Why a target leaves a norm as it is."""
    anchor = norm.output.producer()
    assert anchor is not None
    if choice is not None:
        return Refusal(norm.kind, "no-gain", anchor, "the plan leaves it as it is")
    if len(possible) > 1:
        detail = f"{target.name} has nothing faster; --target ort fuses it"
        return Refusal(norm.kind, "no-gain", anchor, detail)
    ways = _ways(norm, target)
    if not ways:
        return _unsaid(norm, target, anchor)
    needed = _needed_opset(norm, target)
    if needed is not None and needed > opset:
        bound = target.max_opset is not None and needed > target.max_opset
        limit = f"--max-opset is {target.max_opset}" if bound else f"the model is at {opset}"
        return Refusal(norm.kind, "opset-too-low", anchor, f"needs opset {needed}, {limit}")
    detail = f"{target.name} has no {ways[0].operator} for {norm.dtype.name}"
    return Refusal(norm.kind, "no-kernel", anchor, detail)


def _unsaid(norm: Norm, target: Target, anchor: ir.Node) -> Refusal:
    """Why none of a target's lowerings says a norm, whatever the type and the opset."""
    if norm.deviation_epsilon:
        return Refusal(norm.kind, "eps-outside-sqrt", anchor, "RMSNormalization does not give the deviation")
    if any(norm.kind in way.kinds for way in target.lowerings):
        return Refusal(norm.kind, "no-gain", anchor, f"{target.name} has nothing faster")
    return Refusal(norm.kind, "no-fused-operator", anchor, f"{target.name} has no operator for it")
