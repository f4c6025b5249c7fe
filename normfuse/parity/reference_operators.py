"""Operators for ONNX's reference evaluator: those it lacks, and those it is slow or too narrow at.

LayerNormalization, RMSNormalization and SimplifiedLayerNormalization are computed in float64 where the input
is float64 (the evaluator's own cast to float32 on the way), else in float32, as `stash_type` says.
ConvTranspose adds up one strided slice a kernel position instead of one a pixel.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_conv_transpose

from normfuse.parity.settings import Array


def _normalize(x: Array, axis: int, epsilon: float, centre: bool) -> tuple[Any, Any, Any]:
    """The normalized value, the mean and the inverse deviation, over all axes from `axis` on."""
    wide: Any = x if x.dtype == np.float64 else x.astype(np.float32)
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = wide.mean(axes, keepdims=True) if centre else np.zeros_like(wide[..., :1])
    moved = wide - mean if centre else wide
    inverse = 1 / np.sqrt((moved * moved).mean(axes, keepdims=True) + wide.dtype.type(epsilon))
    return moved * inverse, mean, inverse


class LayerNormalization(OpRun):  # type: ignore[misc, unused-ignore]
    """LayerNormalization at any opset: onnxruntime knows it below opset 17 too."""

    op_domain = ""

    def _run(
        self, x: Any, scale: Any, bias: Any = None, axis: Any = -1, epsilon: Any = 1e-5, stash_type: Any = 1
    ) -> tuple[Any, ...]:
        value, mean, inverse = _normalize(x, axis, epsilon, True)
        value = value.astype(x.dtype) * scale
        value = value if bias is None else value + bias
        return (value.astype(scale.dtype), mean, inverse)[: len(self.onnx_node.output)]


class RMSNormalization(OpRun):  # type: ignore[misc, unused-ignore]
    """RMSNormalization-23."""

    op_domain = ""

    def _run(
        self, x: Any, scale: Any, axis: Any = -1, epsilon: Any = 1e-5, stash_type: Any = 1
    ) -> tuple[Any, ...]:
        value, _, inverse = _normalize(x, axis, epsilon, False)
        return ((value.astype(x.dtype) * scale).astype(scale.dtype), inverse)[: len(self.onnx_node.output)]


class SimplifiedLayerNormalization(RMSNormalization):
    """onnxruntime's own RMS normalization, which lives in the default domain."""


class ConvTranspose(op_conv_transpose.ConvTranspose):  # type: ignore[misc, unused-ignore]
    """ConvTranspose with explicit padding; anything else is left to the evaluator's own."""

    op_domain = ""

    def _run(self, x: Any, w: Any, b: Any = None, **attributes: Any) -> Any:  # type: ignore[override]
        plain = attributes.get("auto_pad") in (None, "NOTSET", b"NOTSET")
        if not plain or attributes.get("output_shape"):
            return super()._run(x, w, b, **attributes)  # type: ignore[no-untyped-call]
        return (_conv_transpose(x, w, b, attributes),)


def _conv_transpose(x: Any, w: Any, b: Any, attributes: dict[str, Any]) -> Any:
    rank = x.ndim - 2
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    pads = attributes.get("pads") or [0] * (2 * rank)
    extra = attributes.get("output_padding") or [0] * rank
    groups = attributes.get("group") or 1
    spans = [(n - 1) * s for n, s in zip(x.shape[2:], strides, strict=True)]
    reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [a + r + 1 + e for a, r, e in zip(spans, reach, extra, strict=True)]
    inputs = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    weights = w.reshape(groups, -1, *w.shape[1:])
    out = np.zeros((x.shape[0], groups, w.shape[1], *full), x.dtype)
    for at in product(*(range(k) for k in w.shape[2:])):
        starts = [i * d for i, d in zip(at, dilations, strict=True)]
        window = tuple(slice(i, i + a + 1, s) for i, a, s in zip(starts, spans, strides, strict=True))
        out[(slice(None), slice(None), slice(None), *window)] += np.einsum(
            "ngc...,gco->ngo...", inputs, weights[(slice(None), slice(None), slice(None), *at)]
        )
    out = out.reshape(x.shape[0], -1, *full)
    inner = tuple(slice(pads[i], full[i] - pads[rank + i]) for i in range(rank))
    out = out[(slice(None), slice(None), *inner)]
    return out if b is None else out + b.reshape(-1, *[1] * rank)


OPERATORS = (LayerNormalization, RMSNormalization, SimplifiedLayerNormalization, ConvTranspose)
