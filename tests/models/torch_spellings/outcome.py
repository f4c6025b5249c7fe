"""What came of one export: as asked, refused with a reason, missed, or wrong.

The judgement reads the operators of the written model and not only the report, so that a site that is
reported as fused and still stands there is a miss.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx

import normfuse
from normfuse.errors import CannotVerifyError, NormfuseError, ParityError

from .comparing import compare
from .exporting import ExportError, export
from .table import MAY_STAY, Spelling, Way

Verdict = Literal["as-asked", "refused", "missed", "wrong", "no-export"]

CORES = {
    "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization", "InstanceNormalization",
    "GroupNormalization", "GroupNorm", "MeanVarianceNormalization",
}  # fmt: skip
STATISTICS = {
    "ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "Sqrt", "Pow", "Reciprocal",
    "GlobalAveragePool",
}  # fmt: skip
AFFINE = {"Mul", "Div", "Sub", "BatchNormalization"}
FLOATS = {
    onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE,
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """verdict, and why: the reasons of a refusal, what is left of a miss, or how wrong a result is.

    operators: float operators of the written model, in order; unverified: onnxruntime cannot run the model.
    """

    spelling: str
    way: str
    verdict: Verdict
    why: str = ""
    operators: tuple[str, ...] = ()
    unverified: bool = False

    @property
    def good(self) -> bool:
        """Whether it is what was asked for."""
        return self.verdict == "as-asked"


def outcome(spelling: Spelling, way: Way, out: Path, target: str | None = None) -> Outcome:
    """Export (or read from the cache), rewrite to `out`, compare, and judge."""
    try:
        source = export(spelling, way)
    except ExportError as error:
        return Outcome(spelling.name, way.name, "no-export", str(error))
    try:
        report, unverified = _optimized(source, out, target)
    except ParityError as error:
        return Outcome(spelling.name, way.name, "wrong", f"parity: {error}")
    except NormfuseError as error:
        return Outcome(spelling.name, way.name, "wrong", f"{type(error).__name__}: {error}")
    operators = float_operators(out)
    difference = compare(spelling, way, source, out)
    if difference:
        return Outcome(spelling.name, way.name, "wrong", difference, operators, unverified)
    verdict, why = _judged(spelling, operators, report)
    return Outcome(spelling.name, way.name, verdict, why, operators, unverified)


def _optimized(source: Path, out: Path, target: str | None) -> tuple[normfuse.Report, bool]:
    """The report, and whether the model had to be written without running it."""
    try:
        return normfuse.optimize(source, out, normfuse.Options(target=target)).report, False
    except CannotVerifyError:
        return normfuse.optimize(source, out, normfuse.Options(target=target, verify=False)).report, True


def float_operators(path: Path) -> tuple[str, ...]:
    """The operators of a model that compute floats from something other than constants of their own."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    graph = model.graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.output, *graph.input)}
    return tuple(
        node.op_type
        for node in graph.node
        if node.op_type not in ("Constant", "Identity") and kinds.get(node.output[0], 1) in FLOATS
    )


def _judged(spelling: Spelling, operators: tuple[str, ...], report: normfuse.Report) -> tuple[Verdict, str]:
    reasons = sorted(
        {s.reason for s in report.sites if s.status in ("left", "rolled-back") and s.reason}
        | {f"outside: {s.outside}" for s in report.sites if s.outside}
    )
    if spelling.expectation in MAY_STAY:  # a rewrite is fine too: it was compared
        return ("as-asked", ", ".join(reasons)) if reasons or report.changed else ("missed", "kept silently")
    residue = _residue(spelling, Counter(operators))
    if not residue:
        return "as-asked", ""
    return ("refused", ", ".join(reasons)) if reasons else ("missed", residue)


def _residue(spelling: Spelling, found: Counter[str]) -> str:
    """What stands in the model that should not, or is missing; empty where it is as asked."""
    expected = spelling.expectation
    if expected in ("fold", "fold_hard", "constfold"):
        left = [op for op in found if op in AFFINE | STATISTICS]
        return f"left: {' '.join(left)}" if left else ""
    cores = sum(count for op, count in found.items() if op in CORES)
    if cores < spelling.sites:
        return f"{cores} of {spelling.sites} fused"
    statistics = [op for op in found if op in STATISTICS]
    if statistics and spelling.name != "adain":  # whose style statistics are no normalization
        return f"left: {' '.join(statistics)}"
    affine = [op for op in found if op in ("Mul", "Div", "Sub")]
    if affine and spelling.family in ("LN", "RMS") and expected in ("fuse", "fuse_scaled"):
        return f"outside: {' '.join(affine)}"
    return ""
