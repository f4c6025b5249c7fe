"""onnxruntime on every provider: what all of them have a kernel for."""

from __future__ import annotations

from normfuse.targets.channels import (
    INSTANCE_NORM,
    INSTANCE_NORM_OVER_LAST,
    VIEW_INSTANCE_NORM,
    VIEW_LAYER_NORM,
)
from normfuse.targets.deviation import LAYER_NORM_DEVIATION, SIMPLIFIED_DEVIATION
from normfuse.targets.lowering import AS_SPELLED
from normfuse.targets.target import Target
from normfuse.targets.trailing import LAYER_NORM, RMS_NORM, SIMPLIFIED

EVERYWHERE = (
    LAYER_NORM,
    LAYER_NORM_DEVIATION,
    RMS_NORM,
    SIMPLIFIED,
    SIMPLIFIED_DEVIATION,
    INSTANCE_NORM,
    INSTANCE_NORM_OVER_LAST,
    VIEW_INSTANCE_NORM,
    VIEW_LAYER_NORM,
)
"""RMSNormalization is a standard operator, so it comes before onnxruntime's own: they share a kernel."""

ORT = Target("ort", ("cpu", "cuda"), (*EVERYWHERE, AS_SPELLED))
