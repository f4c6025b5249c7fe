"""Fuses and proves one family on one provider, and holds the report against what the target emits."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
from spelled_families import family

import normfuse
from normfuse.pipeline.rewrite import rewrite
from normfuse.report.record import Report, Site
from normfuse.targets import resolve


def proven(folder: Path, name: str, dtype: str, provider: str, target: str) -> Report:
    """The report of a run that must have been proven, with all the sites that the target fuses."""
    path = folder / f"{name}.onnx"
    onnx.save(family(name, dtype), path)
    options = normfuse.Options(providers=(provider,))
    report = normfuse.optimize(path, out=folder / "fused.onnx", options=options).report
    assert report.target == target
    assert summaries(report.sites) == summaries(emitted(path, target))
    assert any(site.status in ("fused", "folded") for site in report.sites)
    assert report.parity is not None
    assert report.parity.result == "equal", report.parity.detail
    return report


def emitted(path: Path, target: str) -> list[Site]:
    """What a target makes of the sites of a model, without proof."""
    return rewrite(ir.load(path), resolve(target), lambda kind, anchor, output: None).sites


def summaries(sites: list[Site] | tuple[Site, ...]) -> list[tuple[str, str, str | None]]:
    """Kind, status and operator of each site."""
    return [(site.kind, site.status, site.operator) for site in sites]
