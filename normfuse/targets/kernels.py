"""Which fused operator has a kernel for which data type.

Read off onnxruntime 1.32 by creating sessions (2026-11); `standard` is what the ONNX specification allows.
"""

from __future__ import annotations

import onnx_ir as ir

_F32, _F16, _BF16, _F64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE

ALL_FLOATS = frozenset({_F32, _F16, _BF16, _F64})

KERNELS: dict[tuple[str, str], frozenset[ir.DataType]] = {
    ("LayerNormalization", "cpu"): ALL_FLOATS,
    ("SimplifiedLayerNormalization", "cpu"): ALL_FLOATS,
    ("RMSNormalization", "cpu"): ALL_FLOATS - {_BF16},
    ("InstanceNormalization", "cpu"): frozenset({_F32, _F16}),
    ("BatchNormalization", "cpu"): frozenset({_F32, _F16, _F64}),
    ("LRN", "cpu"): frozenset({_F32, _F16}),
    ("LRN", "cuda"): frozenset({_F32, _F16, _F64}),
    ("LRN", "standard"): ALL_FLOATS,
    ("LayerNormalization", "cuda"): ALL_FLOATS,
    ("SimplifiedLayerNormalization", "cuda"): ALL_FLOATS,
    ("RMSNormalization", "cuda"): ALL_FLOATS,
    ("InstanceNormalization", "cuda"): frozenset({_F32, _F16}),
    ("BatchNormalization", "cuda"): frozenset({_F32, _F16, _F64}),
    # By the specification both compute the statistics in float32 (stash_type): too coarse for float64.
    ("LayerNormalization", "standard"): ALL_FLOATS - {_F64},
    ("RMSNormalization", "standard"): ALL_FLOATS - {_F64},
    ("InstanceNormalization", "standard"): frozenset({_F32, _F16, _F64}),
    ("BatchNormalization", "standard"): frozenset({_F32, _F16, _F64}),
}


def has_kernel(operator: str, runtimes: tuple[str, ...], dtype: ir.DataType) -> bool:
    """Whether every one of the runtimes computes an operator in a data type."""
    return all(dtype in KERNELS.get((operator, runtime), frozenset()) for runtime in runtimes)
