"""How is a normalization said on a given runtime? Targets, and one module for each way to say it."""

from normfuse.targets.lowering import AS_SPELLED, Lowering, candidates
from normfuse.targets.plan import Plan, unknown_sites
from normfuse.targets.registry import TARGETS, for_providers, resolve
from normfuse.targets.target import Lowered, Target

__all__ = [
    "AS_SPELLED",
    "TARGETS",
    "Lowered",
    "Lowering",
    "Plan",
    "Target",
    "candidates",
    "for_providers",
    "resolve",
    "unknown_sites",
]
