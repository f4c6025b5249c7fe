"""Certificates for all rewrites of a model: on recorded inputs where the model runs, else on made ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from normfuse.parity.baseline import Baseline
from normfuse.parity.made import SiteMaker
from normfuse.parity.model import Model
from normfuse.parity.placement import Places
from normfuse.parity.record import recordings
from normfuse.parity.settings import Boundary, Settings, on_cpu
from normfuse.parity.sites import Certificate, Site, certify, cut
from normfuse.parity.verdict import ModelVerdict, Parity, SiteVerdict

# What the input of a site is called that computes a constant.
CONSTANTS = "its constants"


@dataclass(frozen=True, eq=False)
class Cuts:
    """The sites that could be cut out of both models, and verdicts on those that could not be."""

    boundaries: Sequence[Boundary]
    sites: Sequence[Site]
    uncut: Mapping[str, SiteVerdict]

    @staticmethod
    def of(original: Model, rewritten: Model, boundaries: Sequence[Boundary]) -> Cuts:
        """Cut every rewrite out of both models."""
        cuts = {b.output: cut(original, rewritten, b) for b in boundaries}
        sites = [site for site in cuts.values() if isinstance(site, Site)]
        return Cuts(boundaries, sites, {k: v for k, v in cuts.items() if isinstance(v, SiteVerdict)})

    def ordered(self, found: Mapping[str, SiteVerdict]) -> dict[str, SiteVerdict]:
        """A verdict for each rewrite, by the name of its output, in the order of the boundaries."""
        return {b.output: {**self.uncut, **found}[b.output] for b in self.boundaries}


def certificates(
    baseline: Baseline, cuts: Cuts, settings: Settings, places: Places
) -> dict[str, SiteVerdict]:
    """A verdict for each rewrite alone, by the name of its output; the floor learns what they allow.

    places: where the result's nodes run; what a provider leaves to the CPU is certified there.
    """
    allowed: dict[str, dict[str, float]] = {}
    found: dict[str, SiteVerdict] = {}
    maker = SiteMaker(baseline.model, settings)
    kept = recordings(baseline.runner, baseline.model, cuts.sites, baseline.trials, settings)
    for site, recorded in kept:
        here = on_cpu(settings) if places.runs_on_cpu(site.after.nodes) else settings
        certificate = certify(site, recorded, here) if recorded else certify_made(site, maker, here)
        found[site.boundary.output] = certificate.verdict
        for label, bound in certificate.bounds.items():
            allowed.setdefault(label, {})[site.boundary.output] = bound
    baseline.floor.certified = allowed
    return cuts.ordered(found)


def certify_made(site: Site, maker: SiteMaker, settings: Settings) -> Certificate:
    """A site on made inputs: the first that the original takes; on nothing where it is a constant."""
    if site.boundary.constant:
        return certify(site, [(CONSTANTS, {})], on_cpu(settings))
    found = Certificate(SiteVerdict("inconclusive", detail="no input could be recorded or made"))
    for label, feed in maker.candidates(site):
        found = certify(site, [(label, feed)], settings)
        if found.verdict.result != "inconclusive":
            break
    return found


def by_site(original: Model, cuts: Cuts, settings: Settings, why: str) -> Parity:
    """The verdict on a model that is not run: every rewrite alone, one at a time, on made inputs.

    A rewrite that nothing can be said of is taken back, for nothing else vouches for it.
    """
    maker = SiteMaker(original, settings)
    ordered = cuts.ordered(
        {site.boundary.output: certify_made(site, maker, settings).verdict for site in cuts.sites}
    )
    guilty = unproved(ordered)
    result = ModelVerdict(
        "certified-by-site" if not guilty else "failed",
        settings.provider,
        notes=(why,),
        seed=settings.seed,
        detail=_first_problem(ordered, guilty),
    )
    return Parity(result, ordered, guilty)


def unproved(sites: Mapping[str, SiteVerdict]) -> tuple[str, ...]:
    """The rewrites that do not hold by themselves."""
    return tuple(name for name, v in sites.items() if v.result in ("failed", "inconclusive"))


def _first_problem(sites: Mapping[str, SiteVerdict], guilty: Sequence[str]) -> str:
    if not guilty:
        return ""
    verdict = sites[guilty[0]]
    return f"the rewrite at {guilty[0]!r} is {verdict.result}: {verdict.detail}"
