"""onnxruntime's CPU provider, as measured on it.

- A norm whose epsilon stands beside the deviation is faster as one operator and a factor for each row, from
  rows of 128 on; below, that is as fast spelled out, or faster.
- x / ||x|| in a few operators is faster than a fused one over short rows, and as fast over inner axes.
- Over inner axes, statistics as matrix products are faster than a norm between two Transposes, but beside a
  convolution the Transposes cost nothing.
- SkipLayerNormalization, which onnxruntime makes of a residual add and a norm, is slower than both.
- One BatchNormalization is faster than the Mul and Add of a lone affine.
"""

from __future__ import annotations

from normfuse.norms.norm import Norm
from normfuse.targets.deviation import has_deviation_epsilon
from normfuse.targets.lowering import AS_SPELLED
from normfuse.targets.ort import EVERYWHERE
from normfuse.targets.statistics import MATMUL_STATISTICS, gains, is_beside_convolution
from normfuse.targets.target import Target

LEAST_L2 = 32
"""How long the rows of an L2 norm have to be for a fused one to gain."""
LEAST_DEVIATION = 128
"""How long the rows have to be where epsilon stands beside the deviation."""
_FEW = 4
"""Operators of an L2 norm that are one pass each, or less: Mul, ReduceSum, Sqrt, Div."""


def _is_short_deviation(norm: Norm) -> bool:
    return has_deviation_epsilon(norm) and norm.known_length < LEAST_DEVIATION


def _is_fast_l2(norm: Norm) -> bool:
    few = norm.kind == "L2Norm" and len(norm.spelled) <= _FEW
    return few and (norm.known_length < LEAST_L2 or not norm.is_trailing)


def _spares_transposes(norm: Norm) -> bool:
    return gains(norm) and not is_beside_convolution(norm)


ORT_CPU = Target(
    "ort-cpu",
    ("cpu",),
    (
        AS_SPELLED.only(_is_fast_l2),
        MATMUL_STATISTICS.only(_spares_transposes),
        AS_SPELLED.only(_is_short_deviation),
        *EVERYWHERE,
        MATMUL_STATISTICS,
        AS_SPELLED,
    ),
    guards_residuals=True,
    rejoins_affines=True,
)
