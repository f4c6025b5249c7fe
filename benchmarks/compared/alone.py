"""Operators alone: each family fused, against its spelling and against a copy of the tensor."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

import normfuse
from compared.families import FAMILIES, Family, copy
from compared.timing import Plan, measure
from normfuse.bench.ratios import Ratio
from normfuse.report.record import Site

WANTED = 1.5  # times as fast as the spelling


@dataclass(frozen=True)
class Alone:
    """faster: spelling / result, taken: result / copy, both for each size of the family."""

    family: Family
    operators: str
    faster: tuple[Ratio, ...]
    taken: tuple[Ratio, ...]
    reason: str

    @property
    def why(self) -> str:
        """What keeps it below 1.5, where something does."""
        if min(ratio.median for ratio in self.faster) >= WANTED:
            return ""
        return "; ".join(filter(None, (self.reason, self.family.why)))


def rows(plan: Plan) -> list[Alone]:
    """All families."""
    return [alone(family, plan) for family in FAMILIES]


def alone(family: Family, plan: Plan) -> Alone:
    """Measure one family at its sizes."""
    faster, taken = [], []
    fused, reason = b"", ""
    for shape in family.sizes:
        spelled, inputs = family.model(shape), family.inputs(shape)
        result = normfuse.optimize(spelled)
        assert isinstance(result.model, bytes)
        fused, reason = result.model, _reason(result.report.sites)
        forms = {"spelled": spelled, "fused": fused, "copy": with_inputs(copy(shape), spelled)}
        times = measure(forms, inputs, plan)
        faster.append(times.ratio("spelled", "fused"))
        taken.append(times.ratio("fused", "copy"))
    return Alone(family, _operators(fused), tuple(faster), tuple(taken), reason)


def with_inputs(model: bytes, other: bytes) -> bytes:
    """A model that takes the inputs of another, whether it reads them or not."""
    mine, theirs = onnx.load_from_string(model), onnx.load_from_string(other)
    del mine.graph.input[:]
    mine.graph.input.extend(theirs.graph.input)
    data: bytes = mine.SerializeToString()
    return data


def _operators(model: bytes) -> str:
    return " ".join(node.op_type for node in onnx.load_from_string(model).graph.node)


def _reason(sites: tuple[Site, ...]) -> str:
    return ", ".join(dict.fromkeys(site.reason for site in sites if site.reason))
