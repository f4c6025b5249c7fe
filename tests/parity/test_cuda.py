"""The same checks on a GPU, through the same code; skipped where onnxruntime has no CUDA provider."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest
from parity_models import batch_norm_pair, stack

from normfuse.parity import Settings, check

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        "CUDAExecutionProvider" not in ort.get_available_providers(), reason="no CUDA provider here"
    ),
]
CUDA = Settings(provider="cuda")


@pytest.mark.parametrize(("how", "guilty"), [("", ()), ("eps x10", ("y1",)), ("gamma shifted", ("y1",))])
def test_norms(tmp_path: Path, how: str, guilty: tuple[str, ...]) -> None:
    pair = stack(4, broken=1, how=how)
    parity = check(*pair.save(tmp_path), pair.sites, CUDA)
    assert parity.guilty == guilty
    assert any("ran on CUDAExecutionProvider" in note for note in parity.model.notes)


@pytest.mark.parametrize(("how", "guilty"), [("", ()), ("bias dropped", ("y",)), ("wrong channel", ("y",))])
def test_folds(tmp_path: Path, how: str, guilty: tuple[str, ...]) -> None:
    pair = batch_norm_pair(how)
    assert check(*pair.save(tmp_path), pair.sites, CUDA).guilty == guilty
