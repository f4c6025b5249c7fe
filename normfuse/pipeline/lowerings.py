"""Which lowering each site gets, where that is not left to the target.

From a file or from tuning: `Lowerings`. Because the one before it failed its parity check: `Retries`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from normfuse.parity.verdict import SiteVerdict
from normfuse.pipeline.rewritten import Rewritten
from normfuse.report.record import Site
from normfuse.targets.lowering import AS_SPELLED
from normfuse.targets.plan import unknown_sites

if TYPE_CHECKING:
    from normfuse.bench.plan_file import SavedPlan
    from normfuse.bench.tuning import Tuning


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


@dataclass
class Retries:
    """Sites whose lowering failed, and which get the next that the target has for them.

    plan: those lowerings, by the names of the sites' outputs. why: what became of the ones before them.
    """

    plan: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    def add(
        self, done: Rewritten, guilty: Mapping[str, SiteVerdict | None], planned: Mapping[str, str]
    ) -> set[str]:
        """The guilty that are to be tried once more; not those whose lowering was asked for (planned)."""
        again = set()
        for site in done.sites:
            names = done.choices.get(site.output, ())
            if site.output not in guilty or site.output in planned or site.lowering not in names:
                continue
            behind = [n for n in names[names.index(site.lowering) + 1 :] if n != AS_SPELLED.name]
            if behind:
                verdict = guilty[site.output]
                self.plan[site.output] = behind[0]
                self.why[site.output] = f"{site.lowering} failed: {verdict.detail if verdict else ''}"
                again.add(site.output)
        return again

    def explained(self, site: Site) -> Site:
        """A site, with the reason why it was not said in the usual way."""
        if site.lowering is None or self.plan.get(site.output) != site.lowering:
            return site
        return dataclasses.replace(site, detail="; ".join(filter(None, (self.why[site.output], site.detail))))
