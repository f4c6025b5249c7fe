"""Versions of installed packages, found without importing them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")
"""The packages that install the module onnxruntime; one of them is enough."""


def installed(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are there, in their order."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
