"""GroupNorm as onnxruntime's own operator of the CUDA provider.

    before   x [N, C, H, W] -> Reshape -> InstanceNormalization -> Reshape -> Mul -> Add
    after    Transpose -> com.microsoft.GroupNorm(channels_last=1, groups) -> Transpose

The kernel (contrib_ops/cuda/diffusion/group_norm*.cu, read 2026-11) takes images with the channels last,
scale and bias in float32, two channels a thread, and at most 512 channels a group. It sums x and x² in
float32 and takes E[x²] - E[x]²: enough for float16, whose own digits are fewer, and not for float32 far from
zero. So it is the first choice in float16 alone; in float32 a plan may ask for it, and parity decides.
"""

from __future__ import annotations

import onnx_ir as ir

from normfuse.norms.norm import Norm
from normfuse.targets.building import Builder
from normfuse.targets.lowering import Lowering

_CHANNELS_PER_THREAD = 2
_MOST_CHANNELS = 512


def _build(builder: Builder) -> ir.Value:
    norm = builder.norm
    along, sizes = (1,), builder.static((1,))
    scale = builder.parameter(norm.scale, along, sizes, "scale", ir.DataType.FLOAT)
    bias = builder.parameter(norm.bias, along, sizes, "bias", ir.DataType.FLOAT)
    last = builder.emit("Transpose", builder.x, perm=(0, 2, 3, 1))
    attributes = {"groups": norm.groups, "epsilon": float(norm.epsilon), "activation": 0, "channels_last": 1}
    y = builder.emit("GroupNorm", last, scale, bias, **attributes)
    return builder.emit("Transpose", y, perm=(0, 3, 1, 2))


def _fits_the_kernel(norm: Norm) -> bool:
    channels = norm.shape[1]
    if len(norm.shape) != 4 or not isinstance(channels, int):
        return False
    length = channels // norm.groups
    return length % _CHANNELS_PER_THREAD == 0 and length <= _MOST_CHANNELS


def is_half(norm: Norm) -> bool:
    """Whether the tensor is float16."""
    return norm.dtype == ir.DataType.FLOAT16


CUDA_GROUP_NORM = Lowering("cuda-group-norm", "GroupNorm", ("GroupNorm",), _build, _fits_the_kernel)
