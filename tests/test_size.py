"""Weights of any size: not read where they do not change, never copied where they need not be."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="sparse files, and blocks counted"),
]
GB, MB = 10**9, 10**6


@pytest.fixture(scope="module")
def size() -> ModuleType:
    """benchmarks/size.py, which builds the models and measures."""
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("size")
    finally:
        sys.path.remove(folder)


def test_13_gb_of_weights_that_do_not_change_cost_nothing(size: ModuleType, tmp_path: Path) -> None:
    path = size.many_weights(tmp_path, 13.0)
    figures = size.measured(path, "-o", path.with_name("out.onnx"), "--no-verify")
    assert figures.memory < 500 * MB
    assert size.written(tmp_path) < 4 * MB


def test_elsewhere_the_holes_of_a_sparse_file_stay_holes(size: ModuleType, tmp_path: Path) -> None:
    path = size.many_weights(tmp_path / "in", 4.0)
    (tmp_path / "out").mkdir()
    figures = size.measured(path, "-o", tmp_path / "out" / "out.onnx", "--no-verify")
    assert (tmp_path / "out" / "out.onnx.data").stat().st_size > 3 * GB
    assert size.written(tmp_path / "out") < 10 * MB
    assert figures.memory < 500 * MB


def test_a_fold_takes_less_than_three_times_the_weight(size: ModuleType, tmp_path: Path) -> None:
    path = size.one_weight(tmp_path, 0.5)
    figures = size.measured(path, "-o", path.with_name("out.onnx"), "--no-verify")
    assert figures.memory < 3 * 0.5 * GB
    assert (tmp_path / "out.onnx").stat().st_size < MB  # the new weight is in a data file, as the old one was
    assert path.with_name("out.onnx.data").stat().st_size > 0.49 * GB
