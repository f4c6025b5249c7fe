"""Rewrite one model: find the normalizations, say them for the target, fold affines, guard residuals.

    find -> lower -> (again, until nothing new is found) -> fold -> guard

What is left out (`--skip`, a site that failed its parity check) is left out by the name of the value that
the site computes, so a rewrite is undone by running this again on the source with one more name.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from normfuse.algebra.operators import REDUCTIONS
from normfuse.folding import fold_all, rejoin
from normfuse.graph.facts import Facts
from normfuse.graph.functions import inlined
from normfuse.graph.opset import raised
from normfuse.graph.surgery import add_constant, displace, remove_orphans, replace, reroute
from normfuse.norms.candidates import FUSED_NORMS
from normfuse.norms.find import Findings, find
from normfuse.norms.local_response import find_local_responses
from normfuse.norms.norm import Norm
from normfuse.norms.refusal import Refusal
from normfuse.norms.weights import find_weight_norms
from normfuse.options import Leave
from normfuse.parity.settings import Boundary
from normfuse.pipeline.neighbours import take_in
from normfuse.pipeline.rewritten import Rewritten
from normfuse.report.record import Site, Status
from normfuse.targets.lowering import AS_SPELLED, candidates, choose, discard, lower, wished_opset
from normfuse.targets.plan import Plan, chosen
from normfuse.targets.residual import SUM, guard_residuals
from normfuse.targets.responses import lower_response
from normfuse.targets.target import Lowered, Target

# Above this a conversion for the sake of a standard opset alone takes longer than everything else.
MAX_NODES_TO_RAISE = 5_000
MAX_ROUNDS = 4


def rewrite(model: ir.Model, target: Target, leave: Leave, plan: Plan | None = None) -> Rewritten:
    """Rewrite `model` for `target`; the model may be changed, and the one in the result is what counts.

    plan: lowerings of sites that are not to get the target's default.

    Model-local functions that hold a candidate are inlined, but only where that lets something be rewritten.
    """
    flat = inlined(model, _may_be_candidate) if model.functions else None
    if flat is None:
        return _rewrite(model, target, leave, plan or {})
    with_functions = _rewrite(model.clone(), target, leave, plan or {})
    without = _rewrite(flat, target, leave, plan or {})
    return without if _rewrites(without) > _rewrites(with_functions) else with_functions


def _may_be_candidate(node: ir.Node) -> bool:
    normalizations = ("BatchNormalization", "GroupNormalization", *FUSED_NORMS)
    return node.domain == "" and (node.op_type in REDUCTIONS or node.op_type in normalizations)


def _rewrites(done: Rewritten) -> int:
    return sum(site.status in ("fused", "folded") for site in done.sites)


def _rewrite(model: ir.Model, target: Target, leave: Leave, plan: Plan) -> Rewritten:
    facts = Facts(model)
    done = Rewritten(model, plan=plan)
    _compute_weights(facts, leave, done)
    found = _find_all(facts)
    higher = _raise(facts, [n for f in found for n in f.norms if _is_wanted(n, target, leave)], target)
    if higher is not None:
        facts = Facts(higher)
        found = _find_all(facts)
        done.model = higher
    _fuse(facts, found, target, leave, done)
    _fuse_responses(facts, target, leave, done)
    _fold(facts, target, leave, done)
    take_in(facts, target, leave, done)
    if target.guards_residuals:
        _guard(facts, leave, done)
    remove_orphans(facts)
    return done


def _find_all(facts: Facts) -> list[Findings]:
    return [find(facts, graph) for graph in facts.graphs()]


def _is_wanted(norm: Norm, target: Target, leave: Leave) -> bool:
    """Whether a site is going to be rewritten, as far as that can be said before it is lowered."""
    return (
        not _is_standard(norm, target)
        and leave(norm.kind, _anchor(norm.output), norm.output.name or "") is None
    )


def _raise(facts: Facts, norms: list[Norm], target: Target) -> ir.Model | None:
    """A copy of the model at the opset that the norms need, where the target wants one and it can be had."""
    wishes = {version for n in norms if (version := wished_opset(n, target)) is not None}
    limit = target.max_opset or max(wishes, default=0)
    needs = sorted((version for version in wishes if version <= limit), reverse=True)
    if not target.standard and sum(graph.num_nodes() for graph in facts.graphs()) > MAX_NODES_TO_RAISE:
        return None
    for version in needs:
        if version > facts.opset:
            higher = raised(facts.model, version, allow_insertions=target.standard)
            if higher is not None:
                return higher
    return None


def _anchor(value: ir.Value) -> str:
    """The name under which a user knows the node that computes a value."""
    producer = value.producer()
    return (producer.name if producer is not None else None) or value.name or ""


def _compute_weights(facts: Facts, leave: Leave, done: Rewritten) -> None:
    for graph in facts.graphs():
        for found in list(find_weight_norms(facts, graph)):
            anchor, name = _anchor(found.output), found.output.name or ""
            site = Site(
                kind="WeightNorm",
                status="folded",
                anchor=anchor,
                output=name,
                spelling=" ".join(n.op_type for n in found.spelled),
                operator="Constant",
            )
            reason = leave(site.kind, anchor, name)
            if reason is not None:
                done.sites.append(_left_out(site, reason))
                continue
            constant = add_constant(facts, found.array, name)
            removed = reroute(facts, found.output, constant)
            done.sites.append(dataclasses.replace(site, nodes_replaced=removed))
            done.boundaries.append(Boundary(site.kind, "", name, anchor, constant=constant.name or ""))


def _fuse(facts: Facts, found: list[Findings], target: Target, leave: Leave, done: Rewritten) -> None:
    """Lower every normalization; look again where a site was left because others shared its values."""
    left: dict[str, Site] = {}
    for _ in range(MAX_ROUNDS):
        left = {site.anchor: site for f in found for site in map(_left, f.refusals)}
        fused = _lower_all(facts, [n for f in found for n in f.norms], target, leave, done, left)
        if not fused or not any(site.reason == "extra-consumer" for site in left.values()):
            break
        found = _find_all(facts)
    done.sites.extend(left.values())


def _fuse_responses(facts: Facts, target: Target, leave: Leave, done: Rewritten) -> None:
    for graph in facts.graphs():
        for found in list(find_local_responses(facts, graph)):
            lowered = found if isinstance(found, Refusal) else lower_response(facts, found, target)
            if isinstance(found, Refusal) or isinstance(lowered, Refusal):
                assert isinstance(lowered, Refusal)
                done.sites.append(_left(lowered))
                continue
            anchor, name = _anchor(found.output), found.output.name or ""
            site = Site(
                kind="LocalResponseNorm",
                status="fused",
                anchor=anchor,
                output=name,
                input=found.input.name or "",
                spelling=" ".join(n.op_type for n in found.spelled),
                operator=lowered.operator,
            )
            reason = leave(site.kind, anchor, name)
            if reason is not None:
                done.sites.append(_left_out(site, reason))
                continue
            removed = replace(facts, found.output, lowered.nodes, lowered.output)
            done.sites.append(dataclasses.replace(site, nodes_replaced=removed))
            done.boundaries.append(Boundary(site.kind, site.input, name, anchor))


def _lower_all(facts: Facts, norms: list[Norm], target: Target, leave: Leave, done: Rewritten,
               left: dict[str, Site]) -> int:  # fmt: skip
    now: dict[ir.Value, ir.Value] = {}  # what stands for a value that an earlier site has replaced
    fused = 0
    for norm in norms:
        anchor, name = _anchor(norm.output), norm.output.name or ""
        if _is_standard(norm, target):
            continue
        reason = leave(norm.kind, anchor, name)
        if reason is not None:
            left[anchor] = _site(norm, anchor, _status(reason), reason=reason)
            continue
        x = now.get(norm.input, norm.input)
        possible = candidates(norm, target, facts.opset)
        lowered = lower(facts, norm, x, target, possible, choose(norm, target, possible, done.plan))
        if not isinstance(lowered, Refusal) and _says_the_same(norm, lowered):
            discard(facts, lowered)
            continue
        if len(possible) > 1:
            done.choices[name] = tuple(way.name for way in possible)
        if isinstance(lowered, Refusal):
            left[anchor] = _left(lowered)
        else:
            done.sites.append(_put(facts, norm, lowered, anchor))
            done.written.update(lowered.nodes)
            done.boundaries.append(Boundary(norm.kind, x.name or "", name, anchor))
            now.update(((norm.output, lowered.output), *lowered.besides))
            fused += 1
    return fused


def _put(facts: Facts, norm: Norm, lowered: Lowered, anchor: str) -> Site:
    """Put a lowering in the place of a norm, and of what else it computes; returns the record of that."""
    spelling, name = norm.spelling, norm.output.name or ""  # the graph no longer has them afterwards
    removed = replace(facts, norm.output, lowered.nodes, lowered.output)
    for old, new in lowered.besides:
        removed += displace(facts, old, new)
    return _site(
        norm,
        anchor,
        "fused",
        operator=lowered.operator,
        lowering=lowered.lowering,
        name=name,
        spelling=spelling,
        removed=removed,
    )


def _is_standard(norm: Norm, target: Target) -> bool:
    """Whether a site is a fused operator of the ONNX specification, which is what a target asks for."""
    return target.standard and len(norm.spelled) == 1


def _says_the_same(norm: Norm, lowered: Lowered) -> bool:
    """Whether a site is already written as the target would write it."""
    return [n.op_type for n in lowered.nodes if n.op_type != "Shape"] == [n.op_type for n in norm.spelled]


def _status(reason: str) -> Status:
    """The status of a site that is left out for a reason."""
    return "rolled-back" if reason == "rolled-back" else "left"


def _left_out(site: Site, reason: str) -> Site:
    """A site as it is reported when it is left out."""
    return dataclasses.replace(site, status=_status(reason), operator=None, reason=reason)


def _site(norm: Norm, anchor: str, status: Status, *, operator: str | None = None, reason: str | None = None,
          name: str | None = None, spelling: str | None = None, removed: int = 0,
          lowering: str | None = None) -> Site:  # fmt: skip
    rank = len(norm.shape)
    return Site(
        kind=norm.kind,
        status=status,
        anchor=anchor,
        output=name if name is not None else norm.output.name or "",
        input=norm.input.name or "",
        spelling=spelling if spelling is not None else norm.spelling,
        operator=operator,
        reason=reason,
        axes=tuple(k - rank for k in norm.axes),
        epsilon=norm.epsilon,
        nodes_replaced=removed,
        outside=norm.outside,
        lowering=lowering,
    )


def _left(refusal: Refusal) -> Site:
    node = refusal.node
    output = node.outputs[0].name or "" if node.outputs else ""
    return Site(kind=refusal.kind, status="left", anchor=node.name or output, output=output,
                spelling=node.op_type, reason=refusal.reason, detail=refusal.detail)  # fmt: skip


def _computed(model: ir.Model, done: Rewritten) -> dict[str, ir.TensorProtocol | None]:
    """What was computed at once, by the names of the constants; None for those that are gone."""
    names = [b.constant for b in done.boundaries if b.constant]
    values = {name: model.graph.initializers.get(name) for name in names}
    return {name: value.const_value if value is not None else None for name, value in values.items()}


def _fold(facts: Facts, target: Target, leave: Leave, done: Rewritten) -> None:
    taken_back: dict[ir.Node, Site] = {}  # folds that failed their check, by their anchors
    norms = {site.output for site in done.sites if site.status == "rolled-back"}

    def excluded(kind: str, anchor: ir.Node, output: str) -> bool:
        reason = leave(kind, anchor.name or output, output)
        if reason == "rolled-back" and output not in norms:
            site = Site(kind, "left", anchor.name or output, output, spelling=anchor.op_type)
            taken_back[anchor] = _left_out(site, reason)
        return reason is not None

    computed = _computed(facts.model, done)
    folds, refusals = fold_all(facts, excluded)
    # A constant that a fold has taken in is proved with the fold.
    taken_in = {name for name, tensor in _computed(facts.model, done).items() if tensor is not computed[name]}
    done.boundaries = [b for b in done.boundaries if b.constant not in taken_in]
    if target.rejoins_affines:
        folds += rejoin(facts, excluded)
    for fold in folds:
        done.sites.append(
            Site(
                kind=fold.kind,
                status="folded",
                anchor=fold.anchor,
                output=fold.output,
                input=fold.input,
                spelling=fold.spelling,
                operator=fold.operator,
                nodes_replaced=fold.nodes_replaced,
                detail=fold.detail,
            )
        )
        done.boundaries.append(Boundary(fold.kind, fold.input, fold.output, fold.anchor))
    for refusal in refusals:
        if refusal.node not in done.written and refusal.node not in taken_back:
            done.sites.append(_left(refusal))
    done.sites.extend(taken_back.values())


def _guard(facts: Facts, leave: Leave, done: Rewritten) -> None:
    left: dict[str, Site] = {}  # two norms may read one sum

    def left_out(kind: str, anchor: str, output: str) -> str | None:
        names = (SUM, AS_SPELLED.name)
        wish = chosen(done.plan, output, names)
        reason = leave(kind, anchor, output)
        if reason is None:
            done.choices[output] = names
            reason = "no-gain" if wish == AS_SPELLED.name else None
        if reason is not None:
            site = Site(kind="Residual", status="left", anchor=anchor, output=output, spelling="Add")
            left[output] = _left_out(site, reason)
        return reason

    for graph in facts.graphs():
        for guarded in guard_residuals(facts, graph, left_out):
            done.sites.append(
                Site(kind="Residual", status="guarded", anchor=guarded.anchor, output=guarded.output,
                     input=guarded.inputs[0], spelling="Add", operator="Sum", nodes_replaced=1,
                     lowering=SUM, detail=f"read by {guarded.norm}")
            )  # fmt: skip
            done.boundaries.append(Boundary("Residual", guarded.inputs[0], guarded.output,
                                            guarded.anchor, guarded.inputs))  # fmt: skip
    done.sites.extend(left.values())
