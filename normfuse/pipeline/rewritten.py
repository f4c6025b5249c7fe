"""What rewriting a model gives: the model, and what is known of each site."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from normfuse.parity.settings import Boundary
from normfuse.report.record import Site
from normfuse.targets.plan import Plan


@dataclass
class Rewritten:
    """The rewritten model, one record for each candidate, and what parity needs to run each rewrite alone.

    written: nodes of this run's own lowerings, which are no candidates.
    plan: the lowerings that were asked for. choices: those that each site has, the default first, by the name
        of its output; sites with a single one are not listed.
    """

    model: ir.Model
    sites: list[Site] = field(default_factory=list)
    boundaries: list[Boundary] = field(default_factory=list)
    written: set[ir.Node] = field(default_factory=set)
    plan: Plan = field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
