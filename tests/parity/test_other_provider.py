"""A result for a provider that is not here: its sites are certified, and the whole is said to be unproven."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from faults import of_norm
from parity_models import layer_norm, model

import normfuse
from normfuse.cli import run
from normfuse.parity.check import check
from normfuse.parity.settings import Boundary, Settings

CUDA = normfuse.Options(target="ort-cuda")


def group_norm() -> onnx.ModelProto:
    """A GroupNorm of images in half precision, for which only CUDA has a kernel; a LayerNorm behind it."""
    body = (
        "v = Reshape(x, view) m = ReduceMean<axes=[2]>(v) d = Sub(v, m) s = Mul(d, d) "
        "q = ReduceMean<axes=[2]>(s) e = Add(q, eps) r = Sqrt(e) n = Div(d, r) f = Reshape(n, back) "
        "k = Mul(f, g) group = Add(k, b) w = Cast<to=1>(group) " + layer_norm("w", "y", 1e-5, "lg", "lb")
    )
    constants: dict[str, Any] = {
        "view": np.array([2, 2, -1]), "back": np.array([2, 4, 6, 6]), "eps": np.float16(1e-3),
        "g": np.linspace(0.5, 2, 4, dtype=np.float16).reshape(4, 1, 1),
        "b": np.linspace(-1, 1, 4, dtype=np.float16).reshape(4, 1, 1),
        "lg": np.ones(6, np.float32), "lb": np.zeros(6, np.float32),
    }  # fmt: skip
    return model("float16[2, 4, 6, 6] x", "float[2, 4, 6, 6] y", body, constants)


def test_its_sites_hold_and_the_result_is_not_verified() -> None:
    with pytest.raises(normfuse.CannotVerifyError, match=r"com\.microsoft\.GroupNorm.*--ep cuda") as caught:
        normfuse.optimize(group_norm(), options=CUDA)
    report = caught.value.report
    found = {site.output: (site.status, site.parity.result) for site in report.sites}
    assert found == {"group": ("fused", "equal"), "y": ("fused", "equal")}
    assert report.parity.result == "not-run"


def test_the_exit_code_is_4_and_nothing_is_written(tmp_path: Path) -> None:
    source, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(group_norm(), source)
    assert run([str(source), "-o", str(out), "--target", "ort-cuda", "-q"]) == 4
    assert not out.exists()
    assert run([str(source), "-o", str(out), "--target", "ort-cuda", "-q", "--no-verify"]) == 0
    assert out.exists()


def test_a_wrong_rewrite_is_taken_back_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    of_norm(epsilon=lambda norm: norm.epsilon * 10)(monkeypatch, "group")
    report = normfuse.optimize(group_norm(), options=CUDA).report
    assert {site.output: site.status for site in report.sites} == {"group": "rolled-back", "y": "fused"}


@pytest.mark.parametrize(
    ("made_for", "result"), [((), "failed"), (("cpu", "cuda"), "failed"), (("cuda",), "not-run")]
)
def test_without_a_kernel_on_its_own_provider_it_fails(
    tmp_path: Path, made_for: tuple[str, ...], result: str
) -> None:
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    onnx.save(group_norm(), before)
    normfuse.optimize(before, after, dataclasses.replace(CUDA, verify=False))
    sites = [Boundary("GroupNorm", "x", "group"), Boundary("LayerNorm", "w", "y")]
    parity = check(before, after, sites, Settings(made_for=made_for))
    assert parity.model.result == result
    assert parity.guilty == (("group",) if result == "failed" else ())
