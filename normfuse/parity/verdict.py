"""What a parity check concludes: plain frozen data, ready for JSON.

`SiteVerdict` is for one rewrite run alone, `ModelVerdict` for the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from normfuse.errors import CannotVerifyError

SiteResult = Literal["equal", "improved", "failed", "inconclusive"]
ModelResult = Literal["equal", "failed", "inconclusive", "certified-by-site", "not-run"]


@dataclass(frozen=True)
class SiteVerdict:
    """One rewrite against the nodes that it replaced, both held against float64.

    error_before, error_after: the largest distance of the original and of the replacement to a float64
    evaluation, divided by the magnitude of the output row; bound: what error_after may be.
    detail: the input on which the worst was seen, or why nothing could be concluded.
    """

    result: SiteResult
    error_before: float = 0.0
    error_after: float = 0.0
    bound: float = 0.0
    detail: str = ""


@dataclass(frozen=True)
class OutputFigures:
    """How one output of the two models compares, on the input that used most of its bound.

    max_relative: over the size of the output, see compare.magnitude; for integers the share of elements that
    differ. noise_floor: how far the original moves by one ulp; bound: what max_relative may be.
    conclusive: False where the output says nothing (random, empty, or nowhere finite); of these only an
    empty one agrees.
    """

    name: str
    dtype: str
    max_absolute: float
    max_relative: float
    max_ulp: float
    cosine: float
    noise_floor: float
    bound: float
    non_finite: int
    agrees: bool
    detail: str = ""
    conclusive: bool = True


@dataclass(frozen=True)
class Placement:
    """Where the fused nodes of the result ran, as it is deployed.

    provider: the one that was asked for; fused: how many fused nodes ran; there: how many of them on it.
    elsewhere: the others, "norm_3 (LayerNormalization) on CPUExecutionProvider".
    """

    provider: str
    fused: int
    there: int
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelVerdict:
    """The whole model: original against result, for one provider.

    result: "certified-by-site" where the model is too large to run and every rewrite left holds by itself.

    inputs: one line for each set of inputs that was fed ("B=2 S=7, normal, seed 0").
    notes: what the user should know ("half precision on CPU is computed in float32").
    seconds: what the verification took.
    plain_run: seconds that it took to open the original at ORT_DISABLE_ALL and to run it once, on the largest
        inputs; 0 where it was not run.
    placement: None where the result was not run as it is deployed.
    """

    result: ModelResult
    provider: str
    outputs: tuple[OutputFigures, ...] = ()
    inputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seed: int = 0
    seconds: float = 0.0
    detail: str = ""
    placement: Placement | None = None
    plain_run: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether the result may be written on the ground of this verdict."""
        return self.result in ("equal", "certified-by-site")


@dataclass(frozen=True)
class Parity:
    """What `check` concludes.

    sites: one verdict for each boundary, by the name of its output.
    guilty: outputs of the rewrites that must be taken back.
    """

    model: ModelVerdict
    sites: Mapping[str, SiteVerdict] = field(default_factory=dict)
    guilty: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether every rewrite has a certificate of its own."""
        return all(site.result in ("equal", "improved") for site in self.sites.values())


class UnverifiedError(CannotVerifyError):
    """The model could not be run; its rewrites were certified one by one, in `parity`."""

    def __init__(self, message: str, hint: str, parity: Parity) -> None:
        super().__init__(message, hint)
        self.parity = parity
