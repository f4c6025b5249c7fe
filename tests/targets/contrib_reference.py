"""onnxruntime's own operators for ONNX's reference evaluator, as their schemas describe them.

GroupNorm computes as the CUDA kernel does: sums of x and x² in float32, E[x²] - E[x]². The Skip operators add
in the type of the tensor and normalize in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from normfuse.parity.reference_operators import OPERATORS


class GroupNorm(OpRun):
    """com.microsoft.GroupNorm on images with the channels last."""

    op_domain = "com.microsoft"

    def _run(
        self, x: Any, gamma: Any, beta: Any, activation: Any, channels_last: Any, epsilon: Any, groups: Any
    ):
        assert channels_last == 1
        assert gamma.dtype == beta.dtype == np.float32
        assert x.ndim == 4
        n, h, w, c = x.shape
        wide = x.astype(np.float32).reshape(n, h * w, groups, c // groups)
        count = np.float32(h * w * (c // groups))
        mean = wide.sum((1, 3), keepdims=True, dtype=np.float32) / count
        variance = (wide * wide).sum((1, 3), keepdims=True, dtype=np.float32) / count - mean * mean
        inverse = np.where(variance <= 0, 1, 1 / np.sqrt(np.maximum(variance, 0) + np.float32(epsilon)))
        y = ((wide - mean) * inverse).reshape(x.shape) * gamma + beta
        y = y / (1 + np.exp(-y)) if activation else y
        return (y.astype(x.dtype),)


def _skipped(run: OpRun, total: Any, gamma: Any, beta: Any, epsilon: float, centre: bool) -> tuple[Any, ...]:
    wide = total.astype(np.float32)
    moved = wide - wide.mean(-1, keepdims=True) if centre else wide
    y = moved / np.sqrt((moved * moved).mean(-1, keepdims=True) + np.float32(epsilon)) * gamma
    y = (y if beta is None else y + beta).astype(total.dtype)
    return (y, None, None, total)[: len(run.onnx_node.output)]


class SkipLayerNormalization(OpRun):
    """com.microsoft.SkipLayerNormalization."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, epsilon: Any = None):
        total = (x if bias is None else x + bias) + skip
        return _skipped(self, total, gamma, beta, epsilon, True)


class SkipSimplifiedLayerNormalization(OpRun):
    """com.microsoft.SkipSimplifiedLayerNormalization."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, skip: Any, gamma: Any, bias: Any = None, epsilon: Any = None):
        total = (x if bias is None else x + bias) + skip
        return _skipped(self, total, gamma, None, epsilon, False)


def evaluated(proto: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    """The outputs of a model that holds onnxruntime's own operators."""
    own = [GroupNorm, SkipLayerNormalization, SkipSimplifiedLayerNormalization]
    return ReferenceEvaluator(proto, new_ops=[*OPERATORS, *own]).run(None, feed)
