"""magika's model: JAX by tf2onnx, opset 15. Two LayerNorms as flax computes them:

    max(0, E[x^2] - E[x]^2), a ReduceSum without its axis times 1/N, brought back by Reshape and Expand

The first runs over axis 1 of [N, 512, 256], which is not the last one: until channels-first norms are fused,
it is left for that reason. The second runs over the last axis; a Slice up to 1000000000 hides its batch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import fused_norms, interface, run
from packaged import magika

import normfuse

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, normfuse.Report]:
    """The result's path and its report."""
    out = tmp_path_factory.mktemp("magika") / "out.onnx"
    return out, normfuse.optimize(magika(), out=out).report


def test_the_layernorm_over_the_last_axis_is_fused(optimized) -> None:
    out, report = optimized

    fused = [site for site in report.sites if site.kind == "LayerNorm" and site.status == "fused"]

    assert any("LayerNorm_1" in site.output for site in fused)
    assert fused_norms(out)["LayerNorm"] == len(fused)


def test_the_layernorm_over_channels_is_fused_or_left_for_its_axis(optimized) -> None:
    _, report = optimized

    (site,) = [s for s in report.sites if s.kind == "LayerNorm" and "LayerNorm_0" in s.output]

    assert site.status == "fused" or (site.status, site.reason) == ("left", "axes-not-trailing")


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
