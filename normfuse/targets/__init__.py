"""How is a normalization said on a given runtime? Targets, and one module for each way to say it."""

from normfuse.targets.target import TARGETS, Lowered, Target, for_providers, resolve

__all__ = ["TARGETS", "Lowered", "Target", "for_providers", "resolve"]
