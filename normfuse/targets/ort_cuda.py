"""onnxruntime's CUDA provider, as its kernels are written; nothing of this has been timed.

- GroupNorm in float16 is one kernel of its own, which also computes the SiLU behind it.
- A residual add is part of the norm behind it where the kernel keeps the digits (see skip.py).
"""

from __future__ import annotations

from normfuse.targets.group_norm import CUDA_GROUP_NORM, is_half
from normfuse.targets.lowering import AS_SPELLED
from normfuse.targets.ort import EVERYWHERE
from normfuse.targets.target import Target

ORT_CUDA = Target(
    "ort-cuda",
    ("cuda",),
    (CUDA_GROUP_NORM.only(is_half), *EVERYWHERE, CUDA_GROUP_NORM, AS_SPELLED),
    skips_residuals=True,
)
