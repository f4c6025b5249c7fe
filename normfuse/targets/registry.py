"""All targets by name.

    onnx       standard operators only; the opset is raised as far as they need, and no further
    ort        onnxruntime on every provider
    ort-cpu    onnxruntime's CPU provider
    ort-cuda   onnxruntime's CUDA provider

The default follows the providers that are asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from normfuse.errors import UsageError
from normfuse.targets.onnx import ONNX
from normfuse.targets.ort import ORT
from normfuse.targets.ort_cpu import ORT_CPU
from normfuse.targets.ort_cuda import ORT_CUDA
from normfuse.targets.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (ONNX, ORT, ORT_CPU, ORT_CUDA)}


def resolve(name: str, max_opset: int | None = None) -> Target:
    """The target of a name; UsageError names the known ones.

    max_opset: the opset above which no model is raised, for the sake of a runtime that knows no newer one.
    """
    if name not in TARGETS:
        raise UsageError(f"there is no target {name!r}; the targets are {', '.join(TARGETS)}")
    if max_opset is not None and max_opset < 1:
        raise UsageError(f"there is no opset {max_opset}", hint="the first one is 1")
    return dataclasses.replace(TARGETS[name], max_opset=max_opset)


def for_providers(providers: Sequence[str], max_opset: int | None = None) -> Target:
    """The default target of the execution providers that are asked for."""
    wanted = set(providers)
    if wanted == {"cpu"}:
        return resolve("ort-cpu", max_opset)
    return resolve("ort-cuda" if wanted == {"cuda"} else "ort", max_opset)
