"""Why a candidate was left: a stable reason code, the node, and one sentence for the user.

A refusal is a value, never a silent `False`: every candidate that is not rewritten ends in the report
with one of the codes of `REASONS`. Codes never change their meaning; scripts may depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

REASONS: dict[str, str] = {
    # normalizations
    "keepdims=0": "a reduction drops its axes and nothing restores them, so it broadcasts along another axis",
    "exponent!=2": "the statistic is not a mean of squares",
    "exponent-not-constant": "the exponent is a run-time value",
    "eps-outside-sqrt": "epsilon is added to the deviation, not to the variance",
    "epsilon-not-constant": "epsilon is a run-time value",
    "epsilon-not-uniform": "epsilon varies over the normalized axes",
    "epsilon-negative": "epsilon is negative, so the root can be NaN",
    "epsilon-not-representable": "epsilon is not a float32, and the operator's attribute is one",
    "statistics-of-another-tensor": "the statistics of one tensor are applied to another",
    "numerator-not-centred": "the deviation is centred and the numerator is not",
    "divisor!=N": "the sum is divided by something that is not provably the number of elements",
    "axes-differ": "the mean and the variance are taken over different axes",
    "affine-expands-shape": "the affine would enlarge the normalized tensor, so no fused operator takes it",
    "affine-not-normalized-axes": "the affine varies over axes that are not normalized",
    "affine-not-constant": "the affine is computed at run time, so no fused operator takes it",
    "unknown-normalized-size": "the size of the normalized axes is not known, so no scale can be written",
    "unknown-shape": "the shapes are not known well enough to prove the rewrite",
    "normalized-size-1": "the normalized axes hold a single element; there is nothing to gain",
    "precision": "the scale or the bias would be rounded to a narrower type",
    "extra-consumer": "values inside are used elsewhere, so fusing would compute them twice",
    "qdq-boundary": "values inside are quantized, and that rounding is part of the model",
    "too-complex": "the walk hit its bound before it knew what is computed",
    "no-gain": "the fused form is slower on the target than the operators it is written in",
    "no-kernel": "the target has no operator for it in this data type",
    "opset-too-low": "the operator needs a newer opset than the model may be raised to",
    "no-fused-operator": "a normalization, but no target operator computes exactly this",
    # folding
    "training-mode": "it computes batch statistics: the model was exported in training mode",
    "linear-output-reused": "the raw output of the linear operator is used elsewhere",
    "no-linear-neighbour": "there is no linear operator with constant weights beside it",
    "activation-between": "an activation stands between the linear operator and the affine",
    "residual-between": "a run-time value is added between the linear operator and the affine",
    "channel-axis": "the affine does not vary along the linear operator's output channels",
    "not-per-channel": "the affine varies over more than the channel axis",
    "padding-not-invariant": "the shift would have to pass through padding",
    "quantized-weight": "the weights are quantized",
    "fold-overflow": "a folded weight would overflow its data type",
    "fold-underflow": "a folded weight would lose a channel in its data type",
    "not-finite-statistics": "the statistics are not finite, or the variance is below -epsilon",
    "non-constant-bias": "the bias is a run-time value",
    # both
    "overridable-initializer": "the constant is also a graph input, so a caller may override it",
    "skipped": "named by --skip",
    "rolled-back": "the rewrite failed its parity check and was taken back",
}


@dataclass(frozen=True)
class Refusal:
    """A candidate that is left as it is.

    kind: the family it looked like ("LayerNorm", "BatchNorm", …).
    reason: a key of `REASONS`.
    node: the anchor, the node that a user would look for.
    detail: what exactly was found, in words, with names and numbers; may be empty.
    """

    kind: str
    reason: str
    node: ir.Node
    detail: str = ""

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise KeyError(f"{self.reason!r} is not a reason code")
