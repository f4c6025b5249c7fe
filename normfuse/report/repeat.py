"""What somebody else needs to come to the same result: the call, the versions, the seed, the sizes."""

from __future__ import annotations

import platform
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING

from normfuse.report.record import Repeat
from normfuse.versions import installed

if TYPE_CHECKING:
    from normfuse.options import Options

PACKAGES = ("normfuse", "onnxruntime", "onnxruntime-gpu", "onnx", "onnx-ir", "numpy")


def repeat_of(function: str, model: str, options: Options) -> Repeat:
    """How to repeat a call of `normfuse.optimize` or `normfuse.inspect` on a model of that name."""
    asked = [
        f"{field.name}={getattr(options, field.name)!r}"
        for field in fields(options)
        if field.compare and getattr(options, field.name) != _default(options, field.name)
    ]
    given = f", options=normfuse.Options({', '.join(asked)})" if asked else ""
    return Repeat(
        call=f"normfuse.{function}({model!r}{given})",
        seed=options.seed,
        dims=dict(options.dims),
        versions=dict(_versions()),
        platform=f"{platform.system()} {platform.machine()}".strip(),
    )


def _default(options: Options, name: str) -> object:
    return getattr(type(options)(), name)


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    return (("python", platform.python_version()), *installed(PACKAGES).items())
