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
