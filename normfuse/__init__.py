"""normfuse: fuse what computes a normalization, fold what is affine, prove the result.

    import normfuse
    result = normfuse.optimize("model.onnx")      # Result(model, report)

The names below are imported when they are first used, so that `normfuse --help` starts at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normfuse.api import Result, inspect, optimize, verify
    from normfuse.errors import CannotVerifyError, InputError, NormfuseError, ParityError, UsageError
    from normfuse.options import Options
    from normfuse.report.record import Report, Site

__version__ = "0.1.0"

__all__ = [
    "CannotVerifyError",
    "InputError",
    "NormfuseError",
    "Options",
    "ParityError",
    "Report",
    "Result",
    "Site",
    "UsageError",
    "__version__",
    "inspect",
    "optimize",
    "verify",
]

_HOMES = {
    "normfuse.api": ("Result", "inspect", "optimize", "verify"),
    "normfuse.errors": ("CannotVerifyError", "InputError", "NormfuseError", "ParityError", "UsageError"),
    "normfuse.options": ("Options",),
    "normfuse.report.record": ("Report", "Site"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'normfuse' has no attribute {name!r}")
