"""Plans as JSON, so that a tuned build can be repeated without measuring again.

    {"schema_version": 1, "model": "encoder.onnx", "target": "ort-cpu", "provider": "cpu",
     "runtime": "1.32.0", "threads": 1, "sizes": {"batch": 8},
     "sites": {"encoder/layer.0/norm": "layer-norm", "decoder/norm": "as-spelled"}}

`sites` is what counts: the lowering by the name of a site's output, defaults included. `target` has to be
that of the build that takes the plan. The rest says where it comes from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normfuse.bench.tuning import Tuning
from normfuse.errors import UsageError

SCHEMA_VERSION = 1
_SHOWN = 3


@dataclass(frozen=True)
class SavedPlan:
    """A plan that was read: where it lies, the model and the target it was made for, and its choices."""

    path: Path
    model: str
    target: str
    sites: Mapping[str, str]

    def require_target(self, target: str) -> None:
        """Raise UsageError for a plan that was made for another target."""
        if self.target != target:
            raise UsageError(
                f"{self.path}: made for target {self.target!r}, and this build is for {target!r}",
                hint=f"give --target {self.target}, or tune anew with --tune",
            )

    def require_known(self, unknown: list[str], model: str) -> None:
        """Raise UsageError that names the sites of a plan which the model does not have."""
        if unknown:
            more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
            listed = ", ".join(map(repr, unknown[:_SHOWN]))
            raise UsageError(
                f"{self.path}: made for {self.model}; {model} has no site {listed}{more}",
                hint="tune this model with --tune, which writes a plan of its own",
            )


def write_plan(path: Path, tuning: Tuning, model: str, target: str) -> None:
    """Write the choices of a tuning; raises UsageError where the file cannot be written."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "model": Path(model).name,
        "target": target,
        "provider": tuning.provider,
        "runtime": tuning.runtime,
        "threads": tuning.threads,
        "sizes": dict(tuning.sizes),
        "sites": tuning.plan,
    }
    try:
        path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the plan {str(path)!r}: {error.strerror or error}") from error


def read_plan(path: Path) -> SavedPlan:
    """Read a plan; raises UsageError for what is none, or of a version that is not known here."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the plan {str(path)!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not a plan: {error}") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version is not None and version != SCHEMA_VERSION:
        raise UsageError(f"{path}: a plan of version {version!r}, and this normfuse reads {SCHEMA_VERSION}")
    if version is None or not _is_whole(data):
        raise UsageError(f"{path}: not a plan", hint="normfuse MODEL --tune --plan FILE writes one")
    return SavedPlan(path, data["model"], data["target"], data["sites"])


def _is_whole(data: dict[str, Any]) -> bool:
    sites = data.get("sites")
    return (
        isinstance(data.get("model"), str)
        and isinstance(data.get("target"), str)
        and isinstance(sites, dict)
        and all(isinstance(lowering, str) for lowering in sites.values())
    )
