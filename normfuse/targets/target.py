"""A target: the runtime that the result is for, and so what may be emitted.

    onnx       standard operators only; the opset is raised as far as they need, and no further
    ort        onnxruntime on every provider
    ort-cpu    onnxruntime's CPU provider
    ort-cuda   onnxruntime's CUDA provider

The default follows the providers that are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from normfuse.errors import UsageError

LAYER_NORM_OPSET = 17
RMS_NORM_OPSET = 23


@dataclass(frozen=True)
class Target:
    """runtimes: columns of the kernel table that must all be able to run what is emitted.

    standard: only operators of the ONNX specification at the model's opset.
    guards_residuals: whether onnxruntime's SkipLayerNormFusion has to be kept away (it is slower on CPU).
    says_deviations: whether a norm with its epsilon beside the deviation gains from the second output.
    least_l2: how long the rows of an L2 norm have to be to gain.
    rejoins_affines: whether one BatchNormalization is faster than the Mul and Add of a lone affine.
    """

    name: str
    runtimes: tuple[str, ...]
    standard: bool = False
    guards_residuals: bool = False
    rejoins_affines: bool = False
    says_deviations: bool = True
    least_l2: int = 0


@dataclass(frozen=True)
class Lowered:
    """New nodes for one site: the value that stands for its output, and the operator a user would name."""

    nodes: tuple[ir.Node, ...]
    output: ir.Value
    operator: str


TARGETS: dict[str, Target] = {
    "onnx": Target("onnx", ("standard",), standard=True),
    "ort": Target("ort", ("cpu", "cuda")),
    "ort-cpu": Target(
        "ort-cpu",
        ("cpu",),
        guards_residuals=True,
        rejoins_affines=True,
        says_deviations=False,
        least_l2=32,
    ),
    "ort-cuda": Target("ort-cuda", ("cuda",)),
}


def resolve(name: str) -> Target:
    """The target of a name; UsageError names the known ones."""
    if name not in TARGETS:
        raise UsageError(f"there is no target {name!r}; the targets are {', '.join(TARGETS)}")
    return TARGETS[name]


def for_providers(providers: Sequence[str]) -> Target:
    """The default target of the execution providers that are asked for."""
    wanted = set(providers)
    if wanted == {"cpu"}:
        return TARGETS["ort-cpu"]
    return TARGETS["ort-cuda"] if wanted == {"cuda"} else TARGETS["ort"]
