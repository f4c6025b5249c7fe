"""What the runtime itself does to a model at the level that users deploy with.

Parity is judged at ORT_DISABLE_ALL. At its default level onnxruntime rewrites graphs on its own, and for some
it computes wrong results or refuses to load. That is no fault of a rewrite, but the user must know: the
optimizer is found by bisecting `disabled_optimizers`, and named with the first node that it spoils.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normfuse.parity.baseline import Baseline
from normfuse.parity.compare import Distance, distance
from normfuse.parity.dtypes import roundoff
from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.sessions import RuntimeRefusalError, open_model
from normfuse.parity.settings import Settings
from normfuse.parity.spoilt import spoilt_node
from normfuse.parity.whole import ROUNDOFFS, TIMES_NOISE, flat

# An optimizer may round otherwise (fast GELU, blocked convolutions): only what is far outside is a mistake.
TIMES_BOUND = 16.0
MOST_CULPRITS = 3
# The entry of a session's configuration that leaves optimizers out.
ENTRY = "optimization.disable_specified_optimizers"

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
    """What is wrong with a model at the deployed level, the optimizers at fault, the node they spoil."""

    what: str
    optimizers: tuple[str, ...]
    node: str = ""


def notes(
    baseline: Baseline, rewritten: Model, results: Sequence[Mapping[str, Any]], settings: Settings
) -> list[str]:
    """What the runtime spoils at its default level: the original, the result, or both alike.

    results: what the rewritten model gives for each trial at ORT_DISABLE_ALL. Where a plain run takes long,
    the original is looked at only if the result is spoilt; where a run does, both only on the first inputs.
    """
    trials = baseline.trials[:1] if baseline.trials[0].heavy else baseline.trials
    before = Deployment(baseline.model, trials, [trial.baseline for trial in trials], baseline, settings)
    after = Deployment(rewritten, trials, results[: len(trials)], baseline, settings)
    if baseline.costly and not after.problem(()):
        return []
    first = find_fault(before)
    second = find_fault(after, first.optimizers if first else ())
    if first and second and first.optimizers == second.optimizers:
        return [_sentence("the original already", first, "; the same goes for the result")]
    found = [_sentence("the original already", first)] if first else []
    return found + ([_sentence("the result", second)] if second else [])


def _sentence(who: str, fault: Fault, also: str = "") -> str:
    lead = f"{who} {fault.what} at onnxruntime's default level{also}: the runtime's doing, not a rewrite's"
    if not fault.optimizers:
        return f"{lead}; no single optimizer explains it, so run it at ORT_DISABLE_ALL"
    listed = ", ".join(fault.optimizers)
    where = f" at the node {fault.node}" if fault.node else ""
    return (
        f"{lead}, by its optimizer {listed}{where}; pass disabled_optimizers={list(fault.optimizers)} to"
        f" InferenceSession, or the session entry {ENTRY}={';'.join(fault.optimizers)} in other languages"
    )


@dataclass(frozen=True, eq=False)
class Deployment:
    """A model as it will be deployed, and what it ought to give for each trial."""

    model: Model
    trials: Sequence[Trial]
    expected: Sequence[Mapping[str, Any]]
    baseline: Baseline
    settings: Settings

    def problem(self, disabled: Sequence[str]) -> str:
        """What goes wrong without these optimizers, or ""."""
        try:
            session = open_model(self.model, self.settings, "deployed", disabled=disabled)
        except RuntimeRefusalError as error:
            return f"does not load ({error})"
        for trial, expected in zip(self.trials, self.expected, strict=True):
            try:
                values = flat(session.run(trial.feed))
            except RuntimeRefusalError as error:
                return f"does not run ({error})"
            for name, value in expected.items():
                wrong = self._difference(trial, name, value, values[name])
                if wrong:
                    return f"gives another {name!r} ({wrong})"
        return ""

    def _difference(self, trial: Trial, name: str, expected: Any, value: Any) -> str:
        if not difference(expected, value, Distance()):
            return ""  # without a look at the noise, which may take a run
        noise = self.baseline.floor.of(trial).get(name, Distance())
        return "" if name in self.baseline.unstable else difference(expected, value, noise)


def find_fault(deployment: Deployment, hint: tuple[str, ...] = ()) -> Fault | None:
    """What goes wrong at the deployed level, or None; hint: optimizers to suspect first."""
    what = deployment.problem(())
    if not what:
        return None
    found = hint
    if not hint or deployment.problem(hint):
        found = culprits(lambda disabled: not deployment.problem(disabled))
    node = spoilt_node(deployment.model, deployment.trials[0].feed, found, deployment.settings)
    return Fault(what, found, node)


def difference(before: Any, after: Any, noise: Distance) -> str:
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
