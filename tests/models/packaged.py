"""Where installed packages keep their models; the packages themselves are never imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def package_folder(name: str) -> Path:
    """The folder of an installed package, found without running its code."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed; it is one of the development dependencies")
    return Path(spec.origin).parent


def rapidocr(name: str) -> Path:
    """One of rapidocr-onnxruntime's three models: det, rec or cls."""
    (path,) = (package_folder("rapidocr_onnxruntime") / "models").glob(f"*_{name}_infer.onnx")
    return path


def magika() -> Path:
    """magika's newest model."""
    return sorted((package_folder("magika") / "models").glob("*/model.onnx"))[-1]
