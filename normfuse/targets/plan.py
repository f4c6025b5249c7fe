"""A plan: which lowering each site gets, where it is not to be the target's default.

    {"encoder/layer.0/norm": "layer-norm", "decoder/norm": "as-spelled"}

The key is the name of a site's output, which no rewrite changes; the value the name of a lowering.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from normfuse.errors import UsageError

Plan = Mapping[str, str]


def chosen(plan: Plan, site: str, names: Collection[str]) -> str | None:
    """The lowering that a plan wants for a site, or None where it says nothing of it.

    Raises UsageError where the site cannot be said so.
    """
    wish = plan.get(site)
    if wish is not None and wish not in names:
        raise UsageError(
            f"the plan wants {wish!r} for {site!r}, which cannot be said so here",
            hint=f"it can be {' or '.join(names)}" if names else "it is left as it is",
        )
    return wish


def unknown_sites(plan: Plan, sites: Collection[str]) -> list[str]:
    """Names in a plan that are no outputs of sites: of another model, or of other options."""
    return [name for name in plan if name not in sites]
