"""magika's model: JAX by tf2onnx, opset 15. Two LayerNorms as flax computes them:

    max(0, E[x^2] - E[x]^2), a ReduceSum without its axis times 1/N, brought back by Reshape and Expand

The first runs over axis 1 of [N, 512, 256], which is not the last one; the second runs over the last axis,
and a Slice up to 1000000000 hides its batch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import fused_norms, interface, operators, run
from packaged import magika

import normfuse

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, normfuse.Report]:
    """The result's path and its report."""
    out = tmp_path_factory.mktemp("magika") / "out.onnx"
    return out, normfuse.optimize(magika(), out=out).report


@pytest.mark.parametrize(
    ("layer", "axes", "lowering"),
    [("LayerNorm_0", (-2,), "matmul-statistics"), ("LayerNorm_1", (-1,), "layer-norm")],
)
def test_both_layernorms_are_fused(layer: str, axes: tuple[int, ...], lowering: str, optimized) -> None:
    out, report = optimized

    (site,) = [s for s in report.sites if s.kind == "LayerNorm" and layer in s.output]

    assert (site.status, site.axes, site.lowering) == ("fused", axes, lowering)
    assert fused_norms(out) == {"LayerNorm": 1, "RMSNorm": 0}
    assert operators(out)["Sqrt"] == 1


def test_the_softmax_is_no_candidate(optimized) -> None:
    _, report = optimized

    assert len([site for site in report.sites if "Norm" in site.kind]) == 2


def test_parity_holds_and_the_interface_survives(optimized) -> None:
    out, report = optimized

    assert report.parity is not None
    assert report.parity.agrees, report.parity.detail
    assert interface(out) == interface(magika())


def test_the_result_runs_at_the_default_level(optimized) -> None:
    out, _ = optimized
    content = np.random.default_rng(0).integers(0, 257, (3, 2048)).astype(np.int32)

    (expected,), (result,) = run(magika(), {"bytes": content}), run(out, {"bytes": content})

    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5)


def test_a_second_run_changes_nothing(optimized, tmp_path: Path) -> None:
    first, _ = optimized

    report = normfuse.optimize(first, out=tmp_path / "second.onnx").report

    assert not report.changed
    assert (tmp_path / "second.onnx").read_bytes() == first.read_bytes()
