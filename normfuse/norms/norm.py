"""A normalization, as it stands between recognising it and saying it for a target.

    LayerNorm     y = scale * (x - mean(x)) / sqrt(var(x) + epsilon) + bias
    RMSNorm       y = scale * x / sqrt(mean(x^2) + epsilon) + bias
    L2Norm        an RMSNorm with epsilon 0: x / ||x|| is sqrt(N) times smaller
    InstanceNorm  a LayerNorm over all axes behind the second, scale and bias along the second
    GroupNorm     the same with `groups` parts of the second axis normalized together with the rest

With a deviation_epsilon d, the divisor is sqrt(var(x) + epsilon) + d.

mean and var are over `axes`. A Norm knows no operator of ONNX; what is emitted for it is a target's affair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import onnx_ir as ir

from normfuse.algebra.coefficient import Array, Coefficient
from normfuse.graph.shapes import Dim

Kind = Literal[
    "LayerNorm",
    "RMSNorm",
    "L2Norm",
    "L1Norm",
    "InstanceNorm",
    "GroupNorm",
    "BatchStatistics",
    "GlobalResponseNorm",
]


@dataclass(frozen=True)
class Norm:
    """One site.

    input, output: values of the graph; the output's name survives the rewrite.
    shape: of x and y. axes: the normalized ones, ascending, counted from 0.
    scale, bias: float64; a number, or an array of the rank of x with size 1 wherever it does not vary.
    dtype: of x and y; a target rounds scale and bias once, to it.
    spelled: the nodes that computed it, in graph order; those that nothing else needs are removed.
    outside: reason code of an affine that stays outside of the fused core, if one does.
    statistics: values that something else reads too, by what they are: "mean", "inverse" (of the deviation).
    """

    kind: Kind
    input: ir.Value
    output: ir.Value
    shape: tuple[Dim, ...]
    axes: tuple[int, ...]
    epsilon: float
    scale: Coefficient
    bias: Coefficient
    dtype: ir.DataType
    spelled: tuple[ir.Node, ...]
    outside: str | None = None
    deviation_epsilon: float = 0.0
    groups: int = 0
    statistics: Mapping[str, ir.Value] = field(default_factory=dict)

    @property
    def size(self) -> tuple[Dim, ...]:
        """The dimensions of the normalized axes."""
        return tuple(self.shape[k] for k in self.axes)

    @property
    def known_length(self) -> int:
        """How many elements are normalized together, as far as that is known: dynamic dimensions count 1."""
        return math.prod(n for n in self.size if isinstance(n, int))

    @property
    def is_biased(self) -> bool:
        """Whether there is a bias to add."""
        return isinstance(self.bias, np.ndarray) or self.bias != 0

    @property
    def is_bare(self) -> bool:
        """Whether there is neither a scale nor a bias."""
        return not isinstance(self.scale, np.ndarray) and self.scale == 1 and not self.is_biased

    @property
    def is_trailing(self) -> bool:
        """Whether the normalized axes are the last ones."""
        return self.axes == tuple(range(self.axes[0], len(self.shape)))

    @property
    def channel(self) -> int:
        """The dimension of the channels of an InstanceNorm or GroupNorm."""
        return 1 if self.axes[0] == 2 else len(self.shape) - 1

    @property
    def spelling(self) -> str:
        """The operators that computed it, in graph order."""
        return " ".join(node.op_type for node in self.spelled)

    def parameter(self, coefficient: Coefficient, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
        """Scale or bias along `axes` of x, expanded to `sizes`, in float64."""
        if not isinstance(coefficient, np.ndarray):
            return np.full(sizes, coefficient)
        return np.broadcast_to(coefficient.reshape([coefficient.shape[k] for k in axes]), sizes)
