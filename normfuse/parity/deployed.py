"""What the runtime itself does to a model at the level that users deploy with.

Parity is judged at ORT_DISABLE_ALL. At its default level onnxruntime rewrites graphs on its own, and for some
it computes wrong results or refuses to load. That is no fault of a rewrite, but the user must know: the
optimizer is found by bisecting `disabled_optimizers`, and named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normfuse.parity.compare import Distance, distance
from normfuse.parity.dtypes import roundoff
from normfuse.parity.floor import Floor
from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.sessions import RuntimeRefusalError, open_model
from normfuse.parity.settings import Settings
from normfuse.parity.whole import ROUNDOFFS, TIMES_NOISE, flat

# An optimizer may round otherwise (fast GELU, blocked convolutions): only what is far outside is a mistake.
TIMES_BOUND = 16.0
MOST_CULPRITS = 3

# Names that `disabled_optimizers` knows, those first that touch normalizations and folds.
OPTIMIZERS = (
    "LayerNormFusion", "LayerNormFusionL1", "LayerNormFusionL2", "SimplifiedLayerNormFusion",
    "SkipLayerNormFusion", "BiasSkipLayerNormFusion", "EmbedLayerNormFusion",
    "GroupQueryAttentionPreNormFusion", "ConvBNFusion", "ConvMulFusion", "ConvAddFusion",
    "MatMul_BatchNormalization_Fusion", "MatMulAddFusion", "MatMulScaleFusion", "DivMulFusion",
    "Pad_Fusion", "GemmSumFusion", "GemmTransposeFusion", "MatmulTransposeFusion", "GemmActivationFusion",
    "MatMulActivationFusion", "ConvActivationFusion", "ConvAddActivationFusion", "FuseReluClip",
    "NchwcTransformer", "NhwcTransformer", "TransposeOptimizer", "ConstantFolding",
    "CommonSubexpressionElimination", "ConstantSharing", "ReshapeFusion", "ExpandElimination",
    "CastElimination", "CastChainElimination", "NoopElimination", "UnsqueezeElimination",
    "PreShapeNodeElimination", "EliminateIdentity", "EliminateSlice", "EliminateDropout",
    "NotWhereFusion", "GatherToSliceFusion", "GatherSliceToSplitFusion",
    "SliceConcatToSpaceToDepthFusion", "GeluFusionL1", "GeluFusionL2", "FastGeluFusion",
    "QuickGeluFusion", "BiasGeluFusion", "BiasSoftmaxFusion", "BiasDropoutFusion", "AttentionFusion",
    "GroupQueryAttentionFusion", "SwiGluFusion", "LabelEncoderFusion", "ClipQuantRewrite",
    "ReluQuantRewrite", "QDQPropagationTransformer", "QDQSelectorActionTransformer",
    "QDQFinalCleanupTransformer", "QDQS8ToU8Transformer", "DoubleQDQPairsRemover",
    "WeightBiasQuantization", "EnsureUniqueDQForNodeUnit", "ConstantFoldingDQ",
    "DynamicQuantizeMatMulFusion", "MatMulIntegerToFloatFusion", "MatMulNBitsFusion",
    "DQMatMulNBitsFusion", "CastFloat16Transformer", "Avx2WeightS8ToU8Transformer",
    "FuseFp16InitializerToFp32NodeTransformer",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What is wrong with a model at the deployed level, and the optimizers at fault."""

    what: str
    optimizers: tuple[str, ...]


def notes(
    original: Model,
    rewritten: Model,
    trials: Sequence[Trial],
    results: Sequence[Mapping[str, Any]],
    floor: Floor,
    settings: Settings,
    unstable: Sequence[str] = (),
) -> list[str]:
    """What the runtime spoils at its default level: the original, the result, or both alike."""
    expected = [{k: v for k, v in trial.baseline.items() if k not in unstable} for trial in trials]
    results = [{k: v for k, v in found.items() if k not in unstable} for found in results]
    if trials[0].heavy:
        trials, expected, results = trials[:1], expected[:1], results[:1]
        if find_fault(rewritten, trials, results, floor, settings) is None:
            return []
    first = find_fault(original, trials, expected, floor, settings)
    hint = first.optimizers if first else ()
    second = find_fault(rewritten, trials, results, floor, settings, hint)
    if first and second and first.optimizers == second.optimizers:
        return [_sentence("the original already", first, "; the same goes for the result")]
    found = [_sentence("the original already", first)] if first else []
    return found + ([_sentence("the result", second)] if second else [])


def _sentence(who: str, fault: Fault, also: str = "") -> str:
    lead = f"{who} {fault.what} at onnxruntime's default level{also}: the runtime's doing, not a rewrite's"
    if not fault.optimizers:
        return f"{lead}; no single optimizer explains it, so run it at ORT_DISABLE_ALL"
    listed = ", ".join(fault.optimizers)
    cure = f"pass disabled_optimizers={list(fault.optimizers)} to InferenceSession"
    return f"{lead}, by its optimizer {listed}; {cure}"


def find_fault(
    model: Model,
    trials: Sequence[Trial],
    expected: Sequence[Mapping[str, Any]],
    floor: Floor,
    settings: Settings,
    hint: tuple[str, ...] = (),
) -> Fault | None:
    """What goes wrong at the deployed level, or None; hint: optimizers to suspect first."""

    def judge(disabled: Sequence[str]) -> str:
        return _problem(model, trials, expected, floor, settings, disabled)

    what = judge(())
    if not what:
        return None
    if hint and not judge(hint):
        return Fault(what, hint)
    return Fault(what, culprits(lambda disabled: not judge(disabled)))


def _problem(
    model: Model,
    trials: Sequence[Trial],
    expected: Sequence[Mapping[str, Any]],
    floor: Floor,
    settings: Settings,
    disabled: Sequence[str],
) -> str:
    try:
        session = open_model(model, settings, "deployed", disabled=disabled)
    except RuntimeRefusalError as error:
        return f"does not load ({error})"
    for trial, baseline in zip(trials, expected, strict=True):
        try:
            values = flat(session.run(trial.feed))
        except RuntimeRefusalError as error:
            return f"does not run ({error})"
        for name, before in baseline.items():
            wrong = _difference(before, values[name], floor.of(trial).get(name, Distance()))
            if wrong:
                return f"gives another {name!r} ({wrong})"
    return ""


def _difference(before: Any, after: Any, noise: Distance) -> str:
    """How a result differs by far more than noise explains, or ""."""
    gap = distance(before, after)
    if noise.mismatch:
        return ""  # the original itself is that unsteady
    bound = TIMES_BOUND * (TIMES_NOISE * noise.relative + ROUNDOFFS * roundoff(before.dtype))
    return gap.mismatch or ("" if gap.relative <= bound else f"off by {gap.relative:.1e}")


def culprits(fixed_by: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """The optimizers without which the model is right, found by halving; () where none explain it."""
    if not fixed_by(OPTIMIZERS):
        return ()
    found: list[str] = []
    while len(found) < MOST_CULPRITS:
        low, high = 0, len(OPTIMIZERS)
        while low < high:
            middle = (low + high) // 2
            if fixed_by([*OPTIMIZERS[:middle], *found]):
                high = middle
            else:
                low = middle + 1
        if low > 0:
            found.append(OPTIMIZERS[low - 1])
        if fixed_by(found):
            return tuple(found)
        if low == 0:
            break
    return ()
