"""What a benchmark found: plain frozen data, ready for JSON. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from normfuse.bench.ratios import Ratio

SCHEMA_VERSION = 1
# In the place of an operator: what a run takes beside its nodes, the cost of profiling them included.
BETWEEN = "(between operators)"

Standing = Literal["first", "faster", "slower", "same"]


@dataclass(frozen=True)
class OperatorTime:
    """What one operator type takes in one run: its nodes together, without what their bodies run.

    operator: the type as the runtime names it after its own fusions; nodes: how many ran.
    """

    operator: str
    seconds: float
    nodes: int


@dataclass(frozen=True)
class Latency:
    """One model.

    median, q1, q3: of the time of one run over all rounds.
    ratio: how many times as fast as the first, None for the first itself.
    standing: against the first, beyond the spread of the first against itself.
    operators: where the time goes, slowest first; empty without a profile.
    profiled: one run while it was profiled, which is slower.
    """

    model: str
    median: float
    q1: float
    q3: float
    ratio: Ratio | None
    standing: Standing
    operators: tuple[OperatorTime, ...] = ()
    profiled: float = 0.0


@dataclass(frozen=True)
class Benchmark:
    """Models side by side on one execution provider, all at ORT_ENABLE_ALL.

    threads: 0 where the runtime chose. inputs: shape of each input, one mapping for each set that was fed.
    sizes: of the dynamic dimensions, where they were chosen here; chosen: those that the caller did not give.
    control: the first model against a second session of itself.
    provider_options: what the provider was told so that float32 is computed in float32, as for verifying.
    """

    provider: str
    threads: int
    runtime: str
    inputs: tuple[Mapping[str, tuple[int, ...]], ...]
    sizes: Mapping[str, int]
    chosen: tuple[str, ...]
    rounds: int
    models: tuple[Latency, ...]
    control: Ratio
    provider_options: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data, with `schema_version` first."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}
