"""What a run found and did: plain data, no graph objects, ready for JSON.

One `Site` for each candidate, one `Report` for each model. The schema is versioned (`SCHEMA_VERSION`);
fields are only ever added within a version.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from normfuse.parity.verdict import ModelVerdict, SiteVerdict

SCHEMA_VERSION = 1

Status = Literal["fused", "folded", "guarded", "left", "rolled-back"]


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
    axes: the normalized axes, counted from the end; epsilon: where it stands inside the root.
    nodes_replaced: how many nodes went.
    outside: reason code of an affine that stayed outside a fused core, or None.
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


@dataclass(frozen=True)
class Report:
    """All that one run has to say about one model.

    bytes_before, bytes_after: the model with all the data it refers to; 0 where it is not known.
    depends_on: data files of the input that the output goes on using.
    foreign: operators of the result that are neither ONNX's nor functions of the model, "domain.name".
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
    warnings: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_before: int = 0
    bytes_after: int = 0
    depends_on: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def count(self, *statuses: Status) -> int:
        """How many sites have one of the given statuses."""
        return sum(site.status in statuses for site in self.sites)

    @property
    def changed(self) -> bool:
        """Whether anything was rewritten at all."""
        return self.count("fused", "folded", "guarded") > 0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data, with `schema_version` first."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}
