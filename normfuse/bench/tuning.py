"""What tuning found: the choice for each site, where it was measured, and what the whole model gains.

Plain frozen data, ready for JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from normfuse.bench.choosing import Choice
from normfuse.bench.ratios import Ratio


@dataclass(frozen=True)
class Tuning:
    """The choices for one model on one provider.

    runtime: version of onnxruntime. threads: 0 where the runtime chose. sizes: of the dynamic dimensions;
    chosen: those of them that the caller did not give. whole: how many times as fast the whole model is with
    the choices as with the defaults, None where the two are the same or were not compared.
    note: what was done about the whole.
    """

    provider: str
    runtime: str
    threads: int
    sizes: Mapping[str, int]
    chosen: tuple[str, ...]
    choices: tuple[Choice, ...]
    whole: Ratio | None = None
    note: str = ""

    @property
    def plan(self) -> dict[str, str]:
        """The lowering of each site, defaults included, so that a build can be repeated."""
        return {choice.site: choice.lowering for choice in self.choices}

    @property
    def changes(self) -> tuple[Choice, ...]:
        """The choices that are not the target's default."""
        return tuple(choice for choice in self.choices if not choice.is_default)
