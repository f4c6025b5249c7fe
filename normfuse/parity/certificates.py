"""Certificates for all rewrites of a model: on recorded inputs where the model runs, else on made ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from normfuse.parity.baseline import Baseline
from normfuse.parity.made import SiteMaker
from normfuse.parity.model import Model
from normfuse.parity.record import recordings
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.sites import Site, certify, cut
from normfuse.parity.verdict import ModelVerdict, Parity, SiteVerdict


def certificates(
    baseline: Baseline, after: Model, boundaries: Sequence[Boundary], settings: Settings
) -> dict[str, SiteVerdict]:
    """A verdict for each rewrite alone, by the name of its output; the floor learns what they allow."""
    allowed: dict[str, dict[str, float]] = {}
    sites, found = _cut_all(baseline.model, after, boundaries)
    maker = SiteMaker(baseline.model, settings)
    for site, recorded in recordings(baseline.model, sites, baseline.trials, settings):
        certificate = certify(site, recorded or maker.recordings(site), settings)
        found[site.boundary.output] = certificate.verdict
        for label, bound in certificate.bounds.items():
            allowed.setdefault(label, {})[site.boundary.output] = bound
    baseline.floor.certified = allowed
    return {b.output: found[b.output] for b in boundaries}


def by_site(
    original: Model, rewritten: Model, boundaries: Sequence[Boundary], settings: Settings, why: str
) -> Parity:
    """The verdict on a model that is not run: every rewrite alone, one at a time, on made inputs.

    A rewrite that nothing can be said of is taken back, for nothing else vouches for it.
    """
    sites, found = _cut_all(original, rewritten, boundaries)
    maker = SiteMaker(original, settings)
    for site in sites:
        found[site.boundary.output] = certify(site, maker.recordings(site), settings).verdict
    ordered = {b.output: found[b.output] for b in boundaries}
    guilty = tuple(name for name, v in ordered.items() if v.result in ("failed", "inconclusive"))
    result = ModelVerdict(
        "certified-by-site" if not guilty else "failed",
        settings.provider,
        notes=(why,),
        seed=settings.seed,
        detail=_first_problem(ordered, guilty),
    )
    return Parity(result, ordered, guilty)


def _first_problem(sites: Mapping[str, SiteVerdict], guilty: Sequence[str]) -> str:
    if not guilty:
        return ""
    verdict = sites[guilty[0]]
    return f"the rewrite at {guilty[0]!r} is {verdict.result}: {verdict.detail}"


def _cut_all(
    original: Model, rewritten: Model, boundaries: Sequence[Boundary]
) -> tuple[list[Site], dict[str, SiteVerdict]]:
    """The sites that could be cut out of both models, and verdicts on those that could not."""
    cuts = {b.output: cut(original, rewritten, b) for b in boundaries}
    sites = [site for site in cuts.values() if isinstance(site, Site)]
    return sites, {name: site for name, site in cuts.items() if isinstance(site, SiteVerdict)}
