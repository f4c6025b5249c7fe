"""What a report for people has on top: a picture of each distinct site, and how long the model takes.

Both cost time that a report for programs need not wait for: they are made where `Options.illustrated` asks.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import onnx_ir as ir

from normfuse import model_io
from normfuse.parity.settings import Settings
from normfuse.report.record import Report
from normfuse.report.sketch import with_pictures


def with_drawings(report: Report, source: model_io.Source, done: ir.Model) -> Report:
    """The report with pictures of its sites; `source` is read once more, for its graph as it was."""
    sites, pictures = with_pictures(report.sites, source.again().model, done)
    return dataclasses.replace(report, sites=sites, pictures=pictures)


def with_latency(report: Report, source: model_io.Source, result: Path, settings: Settings) -> Report:
    """The report with the latency of the original, of the result, and of the result without norms."""
    from normfuse.pipeline.timing import latency

    with model_io.original(source) as original:
        return dataclasses.replace(report, latency=latency(original, result, report.sites, settings))
