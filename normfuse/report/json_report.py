"""The report for programs: JSON that every parser reads, and the schema that describes it.

JSON knows no NaN and no infinity, so those are written as the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import Any


def to_json(data: Any) -> str:
    """Plain data as indented JSON, ending in a line break."""
    return json.dumps(_finite(data), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a report."""
    loaded: dict[str, Any] = json.loads(files("normfuse.report").joinpath("schema.json").read_text("utf-8"))
    return loaded


def fleet_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a report on several models; that of a single report is within it."""
    package = files("normfuse.report")
    loaded: dict[str, Any] = json.loads(package.joinpath("fleet_schema.json").read_text("utf-8"))
    return {**loaded, "$defs": {"report": schema()}}


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data
