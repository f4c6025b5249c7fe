"""Any runtime: operators of the ONNX specification only; the opset is raised as far as they need."""

from __future__ import annotations

from normfuse.targets.channels import (
    INSTANCE_NORM,
    INSTANCE_NORM_OVER_LAST,
    VIEW_INSTANCE_NORM,
    VIEW_LAYER_NORM,
)
from normfuse.targets.deviation import LAYER_NORM_DEVIATION
from normfuse.targets.lowering import AS_SPELLED
from normfuse.targets.target import Target
from normfuse.targets.trailing import LAYER_NORM, RMS_NORM

ONNX = Target(
    "onnx",
    ("standard",),
    (
        LAYER_NORM,
        LAYER_NORM_DEVIATION,
        RMS_NORM,
        INSTANCE_NORM,
        INSTANCE_NORM_OVER_LAST,
        VIEW_INSTANCE_NORM,
        VIEW_LAYER_NORM,
        AS_SPELLED,
    ),
    standard=True,
)
