"""Every family in every float type, fused and proven on the CPU; test_cuda.py does the same on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from proving import proven
from spelled_families import CASES

QUICK_FIRST = [
    pytest.param(name, dtype, marks=[] if dtype == "float" else [pytest.mark.slow]) for name, dtype in CASES
]


@pytest.mark.parametrize(("name", "dtype"), QUICK_FIRST)
def test_each_family_is_proven_on_the_cpu(tmp_path: Path, name: str, dtype: str) -> None:
    report = proven(tmp_path, name, dtype, "cpu", "ort-cpu")
    assert report.parity is not None
    said = any("half precision on CPU is computed in float32" in note for note in report.parity.notes)
    assert said is (dtype != "float")
