"""E[x²] - E[x]² at a large mean: the result is closer to float64 than the original, and both are told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from parity_models import WIDTH, floats, model, one_pass, save
from rich.console import Console

import normfuse
from normfuse.report.json_report import to_json
from normfuse.report.record import Report
from normfuse.report.summary import print_summary

RNG = np.random.default_rng(0)


def printed(report: Report) -> str:
    out = io.StringIO()
    print_summary(report, Console(file=out, width=200))
    return out.getvalue()


@pytest.mark.parametrize("mean", [1000.0, 30000.0])
def test_both_distances_to_float64_are_in_the_summary_and_in_the_report(tmp_path: Path, mean: float) -> None:
    weights = floats({"g": 1 + RNG.normal(size=WIDTH) * 0.3, "b": RNG.normal(size=WIDTH)})
    ends = f"float[B, S, {WIDTH}] x", f"float[B, S, {WIDTH}] y"
    path = save(model(*ends, one_pass("x", "y", 1e-5, "g", "b"), weights), tmp_path / "m.onnx")
    given = tmp_path / "x.npy"
    np.save(given, (RNG.normal(size=(2, 5, WIDTH)) + mean).astype(np.float32))
    report = normfuse.optimize(path, options=normfuse.Options(inputs=given)).report
    (site,) = report.sites
    assert site.parity is not None
    assert (site.status, site.parity.result) == ("fused", "improved")
    assert site.parity.error_before > 100 * site.parity.error_after
    assert site.parity.error_after <= site.parity.bound
    shown = json.loads(to_json(report.to_dict()))["sites"][0]["parity"]
    assert (shown["error_before"], shown["error_after"]) == (
        site.parity.error_before,
        site.parity.error_after,
    )
    text = printed(report)
    assert "1 site closer to the exact result than before" in text
    assert (
        f"off by {site.parity.error_after:.1e} from float64, and was by {site.parity.error_before:.1e}"
        in text
    )


def test_the_cost_is_in_the_summary(tmp_path: Path) -> None:
    weights = floats({"g": np.ones(WIDTH), "b": np.zeros(WIDTH)})
    ends = f"float[B, {WIDTH}] x", f"float[B, {WIDTH}] y"
    path = save(model(*ends, one_pass("x", "y", 1e-5, "g", "b"), weights), tmp_path / "m.onnx")
    report = normfuse.optimize(path).report
    assert report.parity is not None
    assert report.parity.plain_run > 0
    assert "it took" in printed(report)
    assert "plain runs" in printed(report)
