"""The same on a GPU, through the same code: every family in every float type, sabotages, placement.

What is expected comes from the target itself. Skipped, with the reason, where CUDA does not start.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from parity_models import batch_norm_pair, model, stack
from proving import proven
from spelled_families import BODIES, CASES, family

import normfuse
from normfuse.errors import CannotVerifyError
from normfuse.parity.check import check
from normfuse.parity.providers import require
from normfuse.parity.sessions import Session
from normfuse.parity.settings import Settings

NAME = "CUDAExecutionProvider"
CUDA = Settings(provider="cuda")


def _why_not() -> str:
    """Why CUDA cannot be used here, or ""."""
    try:
        require(["cuda"])
    except CannotVerifyError as error:
        return f"{error} ({error.hint})"
    return ""


WHY_NOT = _why_not()
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "CUDA starts here")]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_each_family_is_proven_on_cuda(tmp_path: Path, name: str, dtype: str) -> None:
    report = proven(tmp_path, name, dtype, "cuda", "ort-cuda")
    assert report.parity is not None
    assert any("TF32 is off for this comparison" in note for note in report.parity.notes)
    placement = report.parity.placement
    assert placement is not None
    assert (placement.provider, placement.elsewhere) == (NAME, ())
    assert placement.there == placement.fused


@pytest.mark.parametrize("name", BODIES)
def test_each_family_is_proven_on_both_providers(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(family(name), path)
    report = normfuse.optimize(path, options=normfuse.Options(providers=("cpu", "cuda"))).report
    assert report.target == "ort"
    assert [(v.provider, v.result) for v in report.verdicts] == [("cpu", "equal"), ("cuda", "equal")]


def test_tf32_is_off() -> None:
    proto = model("float[2] x", "float[2] y", "y = Neg(x)")
    session = Session(proto.SerializeToString(), CUDA).session
    assert session.get_provider_options()[NAME]["use_tf32"] == "0"


@pytest.mark.parametrize(("how", "guilty"), [("", ()), ("eps x10", ("y1",)), ("gamma shifted", ("y1",))])
def test_a_sabotaged_norm_is_caught(tmp_path: Path, how: str, guilty: tuple[str, ...]) -> None:
    pair = stack(4, broken=1, how=how)
    parity = check(*pair.save(tmp_path), pair.sites, CUDA)
    assert parity.guilty == guilty
    assert parity.model.placement is not None
    assert parity.model.placement.there == 4


@pytest.mark.parametrize(("how", "guilty"), [("", ()), ("bias dropped", ("y",)), ("wrong channel", ("y",))])
def test_a_sabotaged_fold_is_caught(tmp_path: Path, how: str, guilty: tuple[str, ...]) -> None:
    pair = batch_norm_pair(how)
    assert check(*pair.save(tmp_path), pair.sites, CUDA).guilty == guilty
