"""Which lowering each site gets, where that is not left to the target: from a file, or from tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from normfuse.bench.plan_file import SavedPlan
from normfuse.bench.tuning import Tuning
from normfuse.rewrite import Rewritten
from normfuse.targets.plan import unknown_sites


@dataclass(frozen=True)
class Lowerings:
    """plan: lowerings by the names of the sites' outputs. saved, tuning: where they come from."""

    plan: Mapping[str, str] = field(default_factory=dict)
    saved: SavedPlan | None = None
    tuning: Tuning | None = None

    def require_sites(self, done: Rewritten, model: str) -> None:
        """Raise UsageError where a plan from a file names what is no site of the model."""
        if self.saved is not None:
            known = {*(site.output for site in done.sites), *done.choices}
            self.saved.require_known(unknown_sites(self.plan, known), model)
