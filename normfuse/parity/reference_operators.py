"""Operators for ONNX's reference evaluator: those it lacks, and those it is slow or too narrow at.

LayerNormalization, RMSNormalization and SimplifiedLayerNormalization are computed in float64 where the input
is float64 (the evaluator's own cast to float32 on the way), else in float32, as `stash_type` says.
BatchNormalization below opset 14 mixes the statistics of the batch into those given, in the evaluator, though
in inference it takes them as they are.
Conv and ConvTranspose are one matrix product each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_batch_normalization, op_conv, op_conv_transpose

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


class BatchNormalization(op_batch_normalization.BatchNormalization_14):  # type: ignore[misc, unused-ignore]
    """BatchNormalization at any opset; in inference mode by the statistics that are given."""

    op_domain = ""

    def _run(self, x: Any, *given: Any, **attributes: Any) -> tuple[Any, ...]:
        if attributes.get("training_mode"):
            names = ("epsilon", "momentum", "training_mode")
            kept = {name: attributes[name] for name in names}
            result: tuple[Any, ...] = super()._run(x, *given, **kept)  # type: ignore[no-untyped-call]
            return result
        # At opset 8 and below there may be statistics for each pixel.
        scale, bias, mean, var = (v.reshape(-1, *[1] * (x.ndim - 2)) if v.ndim == 1 else v for v in given)
        epsilon = x.dtype.type(attributes.get("epsilon") or 0)
        y = (x - mean) / np.sqrt(var + epsilon) * scale + bias
        return (y.astype(x.dtype), *given[2:], *given[2:])[: len(self.onnx_node.output)]


def _is_plain(attributes: dict[str, Any]) -> bool:
    """Explicit padding and no output shape; anything else is left to the evaluator's own operator."""
    return attributes.get("auto_pad") in (None, "NOTSET", b"NOTSET") and not attributes.get("output_shape")


class Conv(op_conv.Conv):  # type: ignore[misc, unused-ignore]
    """Conv as one matrix product over the unfolded image."""

    op_domain = ""

    def _run(self, x: Any, w: Any, b: Any = None, **attributes: Any) -> Any:  # type: ignore[override]
        if not _is_plain(attributes):
            return super()._run(x, w, b, **attributes)  # type: ignore[no-untyped-call]
        return (_conv(x, w, b, _Frame.of(w, attributes)),)


class ConvTranspose(op_conv_transpose.ConvTranspose):  # type: ignore[misc, unused-ignore]
    """ConvTranspose as one matrix product, whose parts are added up where they fall."""

    op_domain = ""

    def _run(self, x: Any, w: Any, b: Any = None, **attributes: Any) -> Any:  # type: ignore[override]
        if not _is_plain(attributes):
            return super()._run(x, w, b, **attributes)  # type: ignore[no-untyped-call]
        extra = attributes.get("output_padding") or [0] * (w.ndim - 2)
        return (_conv_transpose(x, w, b, _Frame.of(w, attributes), extra),)


@dataclass(frozen=True)
class _Frame:
    """How a kernel moves over an image; pads: those at the beginning, then those at the end."""

    strides: list[int]
    dilations: list[int]
    pads: list[int]
    groups: int
    reach: list[int]

    @staticmethod
    def of(w: Any, attributes: dict[str, Any]) -> _Frame:
        rank = w.ndim - 2
        dilations = attributes.get("dilations") or [1] * rank
        return _Frame(
            attributes.get("strides") or [1] * rank,
            dilations,
            attributes.get("pads") or [0] * (2 * rank),
            attributes.get("group") or 1,
            [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)],
        )

    def windows(self, kernel: tuple[int, ...], spans: list[int]) -> Iterator[tuple[slice, ...]]:
        """The places of the image that each kernel position meets."""
        for at in product(*(range(k) for k in kernel)):
            starts = [i * d for i, d in zip(at, self.dilations, strict=True)]
            places = zip(starts, spans, self.strides, strict=True)
            yield (slice(None), slice(None), *(slice(i, i + n + 1, s) for i, n, s in places))


def _conv(x: Any, w: Any, b: Any, frame: _Frame) -> Any:
    rank = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *((frame.pads[i], frame.pads[rank + i]) for i in range(rank))])
    sizes = zip(x.shape[2:], frame.reach, frame.strides, strict=True)
    counts = [(n - r - 1) // s + 1 for n, r, s in sizes]
    spans = [(n - 1) * s for n, s in zip(counts, frame.strides, strict=True)]
    seen = np.stack([x[window] for window in frame.windows(w.shape[2:], spans)], axis=2)
    seen = seen.reshape(x.shape[0], frame.groups, int(np.prod(w.shape[1:])), -1)
    out = np.matmul(w.reshape(frame.groups, -1, seen.shape[2]), seen)
    out = out.reshape(x.shape[0], -1, *counts)
    return out if b is None else out + b.reshape(-1, *[1] * rank)


def _conv_transpose(x: Any, w: Any, b: Any, frame: _Frame, extra: list[int]) -> Any:
    rank = w.ndim - 2
    spans = [(n - 1) * s for n, s in zip(x.shape[2:], frame.strides, strict=True)]
    full = [n + r + 1 + e for n, r, e in zip(spans, frame.reach, extra, strict=True)]
    inputs = x.reshape(x.shape[0], frame.groups, -1, int(np.prod(x.shape[2:])))
    turned = w.reshape(frame.groups, -1, int(np.prod(w.shape[1:]))).swapaxes(1, 2)
    parts = np.matmul(turned, inputs).reshape(x.shape[0], frame.groups * w.shape[1], -1, *x.shape[2:])
    out = np.zeros((x.shape[0], frame.groups * w.shape[1], *full), x.dtype)
    for position, window in enumerate(frame.windows(w.shape[2:], spans)):
        out[window] += parts[:, :, position]
    inner = tuple(slice(frame.pads[i], full[i] - frame.pads[rank + i]) for i in range(rank))
    out = out[(slice(None), slice(None), *inner)]
    return out if b is None else out + b.reshape(-1, *[1] * rank)


OPERATORS = (
    *(LayerNormalization, RMSNormalization, SimplifiedLayerNormalization),
    *(BatchNormalization, Conv, ConvTranspose),
)
