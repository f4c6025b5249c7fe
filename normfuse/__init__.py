"""normfuse: fuse what computes a normalization, fold what is affine, prove the result.

    import normfuse
    result = normfuse.optimize("model.onnx")      # Result(model, report)

The names below are imported when they are first used, so that `normfuse --help` starts at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normfuse import torch
    from normfuse.api import Result, benchmark, inspect, optimize, verify
    from normfuse.bench.benchmark import Benchmark
    from normfuse.errors import CannotVerifyError, InputError, NormfuseError, ParityError, UsageError
    from normfuse.explaining import explain
    from normfuse.fleet import inspect_all, jobs_of, optimize_all
    from normfuse.integrations.ir_pass import NormFusePass
    from normfuse.integrations.session import InferenceSession
    from normfuse.options import Options
    from normfuse.report.explanation import Explanation
    from normfuse.report.fleet import Fleet, Outcome
    from normfuse.report.record import Report, Site
    from normfuse.targets import Target

__version__ = "0.1.0"

__all__ = [
    "Benchmark",
    "CannotVerifyError",
    "Explanation",
    "Fleet",
    "InferenceSession",
    "InputError",
    "NormFusePass",
    "NormfuseError",
    "Options",
    "Outcome",
    "ParityError",
    "Report",
    "Result",
    "Site",
    "Target",
    "UsageError",
    "__version__",
    "benchmark",
    "explain",
    "inspect",
    "inspect_all",
    "jobs_of",
    "optimize",
    "optimize_all",
    "torch",
    "verify",
]

_HOMES = {
    "normfuse.api": ("Result", "benchmark", "inspect", "optimize", "verify"),
    "normfuse.bench.benchmark": ("Benchmark",),
    "normfuse.errors": ("CannotVerifyError", "InputError", "NormfuseError", "ParityError", "UsageError"),
    "normfuse.explaining": ("explain",),
    "normfuse.fleet": ("inspect_all", "jobs_of", "optimize_all"),
    "normfuse.integrations.ir_pass": ("NormFusePass",),
    "normfuse.integrations.session": ("InferenceSession",),
    "normfuse.options": ("Options",),
    "normfuse.report.explanation": ("Explanation",),
    "normfuse.report.fleet": ("Fleet", "Outcome"),
    "normfuse.report.record": ("Report", "Site"),
    "normfuse.targets": ("Target",),
}
_MODULES = ("torch",)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"normfuse.{name}")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'normfuse' has no attribute {name!r}")
