"""onnxruntime's own operators for ONNX's reference evaluator, as their schemas describe them.

GroupNorm has a kernel on CUDA alone, and Skip* are what is said there for a residual add before a norm.
They are computed in float64 where the input is float64, else as the kernels do: GroupNorm takes sums of x and
x² in float32 and E[x²] - E[x]²; the Skip operators add in the type of the tensor and normalize in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from normfuse.parity.settings import Array


class GroupNorm(OpRun):  # type: ignore[misc, unused-ignore]
    """com.microsoft.GroupNorm on images with the channels last, with a SiLU behind it where asked for."""

    op_domain = "com.microsoft"

    def _run(
        self, x: Any, gamma: Any, beta: Any, activation: Any = 0, channels_last: Any = 1, epsilon: Any = 1e-5,
        groups: Any = 1,
    ) -> tuple[Any, ...]:  # fmt: skip
        if not channels_last or x.ndim != 4:
            raise NotImplementedError("GroupNorm is known for images with the channels last")
        if {gamma.dtype, beta.dtype} - {np.dtype(np.float32), np.dtype(np.float64)}:
            raise NotImplementedError("GroupNorm takes gamma and beta in float32, whatever the type of x")
        wide = _wide(x).reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
        count = wide.dtype.type(wide.shape[1] * wide.shape[3])
        mean = wide.sum((1, 3), keepdims=True, dtype=wide.dtype) / count
        variance = (wide * wide).sum((1, 3), keepdims=True, dtype=wide.dtype) / count - mean * mean
        deviation = np.sqrt(np.maximum(variance, 0) + wide.dtype.type(epsilon))
        inverse = np.where(variance <= 0, 1, 1 / deviation)
        y = ((wide - mean) * inverse).reshape(x.shape) * gamma + beta
        y = y / (1 + np.exp(-y)) if activation else y
        return (y.astype(x.dtype),)


class SkipLayerNormalization(OpRun):  # type: ignore[misc, unused-ignore]
    """com.microsoft.SkipLayerNormalization."""

    op_domain = "com.microsoft"

    def _run(
        self, x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, epsilon: Any = 1e-12
    ) -> tuple[Any, ...]:
        total = (x if bias is None else x + bias) + skip
        return _skipped(total, gamma, beta, epsilon, True)[: len(self.onnx_node.output)]


class SkipSimplifiedLayerNormalization(OpRun):  # type: ignore[misc, unused-ignore]
    """com.microsoft.SkipSimplifiedLayerNormalization."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, skip: Any, gamma: Any, bias: Any = None, epsilon: Any = 1e-12) -> tuple[Any, ...]:
        total = (x if bias is None else x + bias) + skip
        return _skipped(total, gamma, None, epsilon, False)[: len(self.onnx_node.output)]


def _wide(x: Array) -> Any:
    return x if x.dtype == np.float64 else x.astype(np.float32)


def _skipped(total: Any, gamma: Any, beta: Any, epsilon: Any, centre: bool) -> tuple[Any, ...]:
    """The norm of a sum, its mean and inverse deviation, and the sum itself."""
    wide = _wide(total)
    mean = wide.mean(-1, keepdims=True) if centre else np.zeros_like(wide[..., :1])
    moved = wide - mean
    inverse = 1 / np.sqrt((moved * moved).mean(-1, keepdims=True) + wide.dtype.type(epsilon))
    y = moved * inverse * gamma
    return (y if beta is None else y + beta).astype(total.dtype), mean, inverse, total


CONTRIB = (GroupNorm, SkipLayerNormalization, SkipSimplifiedLayerNormalization)
