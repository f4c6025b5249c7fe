"""What a run found and did: plain data, no graph objects, ready for JSON.

One `Site` for each candidate, one `Report` for each model. The schema is versioned (`SCHEMA_VERSION`);
fields are only ever added within a version.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from normfuse.parity.verdict import ModelVerdict, SiteVerdict
from normfuse.report.picture import Picture

if TYPE_CHECKING:
    from normfuse.bench.tuning import Tuning

SCHEMA_VERSION = 1

Status = Literal["fused", "folded", "guarded", "left", "rolled-back"]
DONE: tuple[Status, ...] = ("fused", "folded", "guarded")
"""What is a rewrite, and not a candidate that stays."""


@dataclass(frozen=True)
class Site:
    """One candidate.

    kind: "LayerNorm", "RMSNorm", "BatchNorm", "Affine", "Residual", …
    status: fused and folded are rewrites; guarded keeps a residual add from the runtime's slower fusion;
        left carries a reason code; rolled-back failed its parity check.
    anchor: name of the node that stands for the site (the source's own name).
    input, output: names of the values that the site reads and writes; the output's name survives a rewrite.
    spelling: the operators it was written in, in order, such as "ReduceMean Sub Pow ReduceMean Add Sqrt Div".
    operator: what was emitted ("LayerNormalization"), or None.
    lowering: the name of the way in which it was said ("layer-norm"), as plans have it, or None.
    axes: the normalized axes, counted from the end; epsilon: where it stands inside the root.
    nodes_replaced: how many nodes went.
    outside: reason code of an affine that stayed outside a fused core, or None.
    picture: which of the report's pictures shows the site, or None where none was drawn.
    """

    kind: str
    status: Status
    anchor: str
    output: str
    input: str = ""
    spelling: str = ""
    operator: str | None = None
    reason: str | None = None
    detail: str = ""
    axes: tuple[int, ...] = ()
    epsilon: float | None = None
    nodes_replaced: int = 0
    outside: str | None = None
    parity: SiteVerdict | None = None
    lowering: str | None = None
    picture: int | None = None


@dataclass(frozen=True)
class Latency:
    """How long one run of the model takes, in seconds: medians over rounds in which the models took turns.

    before: the original; after: the result; without_norms: the result with every normalization taken out,
    what norms that cost nothing would give; None where that does not run.
    faster: how many times as fast the result is as the original; low, high: the 95 % interval of that.
    noise: the original against itself, as the factor that its interval reaches from 1.
    inputs: the sizes that were fed. why_not: why nothing was measured; then there are no figures.
    """

    provider: str
    threads: int = 1
    inputs: str = ""
    rounds: int = 0
    before: float = 0.0
    after: float = 0.0
    without_norms: float | None = None
    faster: float = 1.0
    low: float = 1.0
    high: float = 1.0
    noise: float = 1.0
    why_not: str = ""


@dataclass(frozen=True)
class Repeat:
    """What another run needs to come to the same result.

    call: the command line, or the Python call. versions: of everything that has a say, by package.
    """

    call: str
    seed: int = 0
    dims: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    platform: str = ""


@dataclass(frozen=True)
class Report:
    """All that one run has to say about one model.

    parity: the verdict that decided; verdicts: one for each provider that was asked for, that one included.
    bytes_before, bytes_after: the model with all the data it refers to; 0 where it is not known.
    data_files: the input's external data files; depends_on: those that the output goes on using.
    foreign: operators of the result that are neither ONNX's nor functions of the model, "domain.name".
    outlook: whether nothing was done, and each status says what a run would do.
    pictures: the distinct sites, drawn where a report for people is wanted.
    latency: measured where a report for people is wanted.
    repeat: what another run needs to come to the same result.
    tuning: the lowerings that were measured and chosen, where that was asked for.
    """

    model: str
    target: str
    providers: tuple[str, ...]
    sites: tuple[Site, ...]
    nodes_before: int
    nodes_after: int
    opset_before: int
    opset_after: int
    standard_onnx: bool
    written: str | None = None
    parity: ModelVerdict | None = None
    verdicts: tuple[ModelVerdict, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_before: int = 0
    bytes_after: int = 0
    depends_on: tuple[str, ...] = ()
    data_files: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    outlook: bool = False
    pictures: tuple[Picture, ...] = ()
    latency: Latency | None = None
    repeat: Repeat | None = None
    tuning: Tuning | None = None

    def count(self, *statuses: Status) -> int:
        """How many sites have one of the given statuses."""
        return sum(site.status in statuses for site in self.sites)

    @property
    def changed(self) -> bool:
        """Whether anything was rewritten at all."""
        return self.count(*DONE) > 0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data, with `schema_version` first."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}
