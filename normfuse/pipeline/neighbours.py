"""What norms that are in the graph take in of their neighbours, and what that changes in the records.

Transposes around a norm      gone where it is computed over inner axes (targets/turned.py)
residual add before a norm    part of it on CUDA (targets/skip.py)
SiLU behind a GroupNorm       part of it on CUDA (targets/silu.py)
"""

from __future__ import annotations

import dataclasses

from normfuse.graph.facts import Facts
from normfuse.options import Leave
from normfuse.parity.settings import Boundary
from normfuse.pipeline.rewritten import Rewritten
from normfuse.report.record import Site
from normfuse.targets.absorbed import Absorbed
from normfuse.targets.silu import absorb_silu
from normfuse.targets.skip import absorb_residuals
from normfuse.targets.target import Target
from normfuse.targets.turned import absorb_transposes


def take_in(facts: Facts, target: Target, leave: Leave, done: Rewritten) -> None:
    """Let norms compute their neighbours where the target has operators for both."""
    found: list[Absorbed] = []
    for graph in facts.graphs():
        found += absorb_transposes(facts, graph, target, leave, done.plan, done.choices)
        if target.skips_residuals:
            found += absorb_residuals(facts, graph, target.runtimes, leave, done.plan, done.choices)
            found += absorb_silu(facts, graph, leave)
    sites = {site.output: k for k, site in enumerate(done.sites) if site.status == "fused"}
    boundaries = {boundary.output: k for k, boundary in enumerate(done.boundaries)}
    for absorbed in found:
        site = _site(done, sites.get(absorbed.norm), absorbed)
        _bound(done, boundaries.get(absorbed.norm), absorbed, site)


def _site(done: Rewritten, place: int | None, absorbed: Absorbed) -> Site:
    """The record of a norm, changed; a norm that the model had already gets one."""
    if place is None:
        new = Site(absorbed.kind, "fused", absorbed.anchor, absorbed.output, spelling=absorbed.spelling)
        done.sites.append(new)
        place = len(done.sites) - 1
    old = done.sites[place]
    done.sites[place] = dataclasses.replace(
        old,
        input=absorbed.inputs[0] if absorbed.inputs else old.input,
        output=absorbed.output,
        operator=absorbed.operator,
        lowering=absorbed.lowering,
        detail=absorbed.detail,
    )
    return done.sites[place]


def _bound(done: Rewritten, place: int | None, absorbed: Absorbed, site: Site) -> None:
    """Between which values the rewrite is checked now."""
    reads = absorbed.inputs or ((site.input,) if place is None else done.boundaries[place].reads)
    boundary = Boundary(site.kind, reads[0], absorbed.output, absorbed.anchor, tuple(reads))
    if place is None:
        done.boundaries.append(boundary)
    else:
        done.boundaries[place] = boundary
