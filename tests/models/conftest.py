"""Whole models: the helpers beside the tests can be imported, and each export is made once a session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from exports import Export


@pytest.fixture(scope="session")
def export_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Export], Path]:
    """export_file(which): the path of that export, made at the first call."""
    folder = tmp_path_factory.mktemp("exports")

    def get(which: Export) -> Path:
        path = folder / f"{which.name}.onnx"
        return path if path.exists() else which.write(path)

    return get


@pytest.fixture(scope="session")
def decoder_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """decoder_file(name): the path of that export of torch_decoders, made at the first call."""
    folder = tmp_path_factory.mktemp("decoders")

    def get(name: str) -> Path:
        import torch_decoders  # torch takes seconds to import, so only where it is needed

        path = folder / f"{name}.onnx"
        return path if path.exists() else torch_decoders.EXPORTS[name](path)

    return get
