"""A target: the runtime that the result is for, and so what may be emitted, and what is fastest there.

`lowerings` is the whole of it: the ways in which norms are said there, best first. What each target has is in
a module of its own (`onnx.py`, `ort.py`, `ort_cpu.py`, `ort_cuda.py`); `registry.py` knows them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from normfuse.targets.lowering import Lowering

LAYER_NORM_OPSET = 17


@dataclass(frozen=True)
class Target:
    """What may be emitted, and which of it first.

    runtimes: columns of the kernel table that must all be able to run what is emitted.
    lowerings: in order; of those that can say a norm the first is taken, the others are what tuning may try.
    standard: only operators of the ONNX specification at the model's opset, which is raised as far as needed.
    guards_residuals: whether onnxruntime's SkipLayerNormFusion has to be kept away (it is slower on CPU).
    skips_residuals: whether a norm takes in the residual add before it.
    rejoins_affines: whether one BatchNormalization is faster than the Mul and Add of a lone affine.
    max_opset: the opset is never raised above it; None: as far as needed.
    """

    name: str
    runtimes: tuple[str, ...]
    lowerings: tuple[Lowering, ...]
    standard: bool = False
    guards_residuals: bool = False
    skips_residuals: bool = False
    rejoins_affines: bool = False
    max_opset: int | None = None


@dataclass(frozen=True)
class Lowered:
    """New nodes for one site: the value that stands for its output, and the operator a user would name.

    lowering: the name of the way that was taken. besides: further values, and what stands for each of them.
    """

    nodes: tuple[ir.Node, ...]
    output: ir.Value
    operator: str
    lowering: str = ""
    besides: tuple[tuple[ir.Value, ir.Value], ...] = ()
