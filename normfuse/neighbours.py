"""What norms that are in the graph take in of their neighbours, and what that changes in the records.

residual add before a norm    part of it on CUDA (targets/skip.py)
SiLU behind a GroupNorm       part of it on CUDA (targets/silu.py)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.options import Leave
from normfuse.parity import Boundary
from normfuse.report.record import Site
from normfuse.targets.absorbed import Absorbed
from normfuse.targets.plan import Plan
from normfuse.targets.silu import absorb_silu
from normfuse.targets.skip import absorb_residuals
from normfuse.targets.target import Target
from normfuse.targets.turned import absorb_transposes


@dataclasses.dataclass(frozen=True)
class Records:
    """What is known of the rewrites so far; changed in place."""

    sites: list[Site]
    boundaries: list[Boundary]
    plan: Plan
    choices: dict[str, tuple[str, ...]]


def take_in(facts: Facts, graphs: Sequence[ir.Graph], target: Target, leave: Leave, records: Records) -> None:
    """Let norms compute their neighbours where the target has operators for both."""
    found: list[Absorbed] = []
    for graph in graphs:
        found += absorb_transposes(facts, graph, target, leave, records.plan, records.choices)
        if target.skips_residuals:
            found += absorb_residuals(facts, graph, target.runtimes, leave, records.plan, records.choices)
            found += absorb_silu(facts, graph, leave)
    sites = {site.output: k for k, site in enumerate(records.sites) if site.status == "fused"}
    boundaries = {boundary.output: k for k, boundary in enumerate(records.boundaries)}
    for absorbed in found:
        site = _site(records, sites.get(absorbed.norm), absorbed)
        _bound(records, boundaries.get(absorbed.norm), absorbed, site)


def _site(records: Records, place: int | None, absorbed: Absorbed) -> Site:
    """The record of a norm, changed; a norm that the model had already gets one."""
    if place is None:
        new = Site(absorbed.kind, "fused", absorbed.anchor, absorbed.output, spelling=absorbed.spelling)
        records.sites.append(new)
        place = len(records.sites) - 1
    old = records.sites[place]
    records.sites[place] = dataclasses.replace(
        old,
        input=absorbed.inputs[0] if absorbed.inputs else old.input,
        output=absorbed.output,
        operator=absorbed.operator,
        lowering=absorbed.lowering,
        detail=absorbed.detail,
    )
    return records.sites[place]


def _bound(records: Records, place: int | None, absorbed: Absorbed, site: Site) -> None:
    """Between which values the rewrite is checked now."""
    reads = absorbed.inputs or ((site.input,) if place is None else records.boundaries[place].reads)
    boundary = Boundary(site.kind, reads[0], absorbed.output, absorbed.anchor, tuple(reads))
    if place is None:
        records.boundaries.append(boundary)
    else:
        records.boundaries[place] = boundary
