"""Why a walk from an affine found no place to fold it into: a value, so that it can be reported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stop:
    """reason: a code of `normfuse.norms.refusal.REASONS`; detail: what exactly was found.

    reached: whether a linear operator stands at the end of the walk, so that a user would expect a fold.
    """

    reason: str
    detail: str = ""
    reached: bool = False


NOTHING_TO_GAIN = Stop("no-linear-neighbour", "the affine is the linear operator's own bias")
