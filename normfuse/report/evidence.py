"""What was measured, as the HTML report shows it: latency as bars, parity as plots and tables."""

from __future__ import annotations

from typing import Any

from normfuse.parity.verdict import OutputFigures
from normfuse.report.figures import nearest_to_bound, parity_plot
from normfuse.report.record import Latency, Report, Site
from normfuse.report.text import duration, figure, plural, printable

MOST_ROWS = 1000
_WIDE, _NARROW = 10.5, 4.5
"""Inches of a plot; the page stretches it to its own width, so this sets how large the letters look."""
View = dict[str, Any]


def latency_view(report: Report) -> View | None:
    """How fast it was and is, or how to find out; None where nothing was done."""
    found = report.latency
    if found is None or found.why_not:
        if report.outlook or not report.changed:
            return None
        why = f"Not measured: {printable(found.why_not)}. " if found is not None else "Not measured. "
        return {"bars": [], "how": f"{why}normfuse bench ORIGINAL RESULT measures it with care."}
    bars = [("before", "before", found.before), ("after", "after", found.after)]
    if found.without_norms is not None:
        bars.append(("none", "without norms", found.without_norms))
    longest = max(value for _, _, value in bars) or 1.0
    return {
        "sentence": _sentence(found),
        "bars": [
            {"kind": kind, "label": label, "percent": f"{100 * t / longest:.1f}", "figure": duration(t)}
            for kind, label, t in bars
        ],
        "how": (
            f"One run on {found.provider}, {plural(found.threads, 'thread')}, ORT_ENABLE_ALL: medians of"
            f" {plural(found.rounds, 'round')} in which the models took turns, at {printable(found.inputs)}."
            " A short look at sizes made for the verification (--dim NAME=SIZE sets them);"
            " normfuse bench ORIGINAL RESULT measures with care."
        ),
    }


def _sentence(found: Latency) -> str:
    interval = f"(95 % interval {found.low:.3f} to {found.high:.3f})"
    speed = standing(found)
    text = {
        "faster": f"The result is {found.faster:.2f} times as fast {interval}",
        "slower": f"The result is slower here: {found.faster:.2f} times as fast {interval}",
        "same": f"No difference beyond the noise of this machine {interval}",
    }[speed]
    if found.without_norms is None:
        return f"{text}."
    cost = found.before - found.without_norms
    if cost > 0.02 * found.before and speed == "faster":
        share = min((found.before - found.after) / cost, 1.0)
        text += f"; of what its norms cost, {share:.0%} is gone"
    return (
        f"{text}. Without norms: the result with every normalization taken out,"
        " the limit of what fusing can give."
    )


def standing(found: Latency) -> str:
    """Whether the result is faster, slower, or the same within the noise of the machine."""
    if found.low > found.noise:
        return "faster"
    return "slower" if found.high < 1 / found.noise else "same"


def parity_view(report: Report, name: str) -> View | None:
    """The plots, and the figures of sites and outputs; None where nothing was run."""
    verdicts = [(k + 1, site) for k, site in enumerate(report.sites) if site.parity is not None]
    verdict = report.parity
    if not verdicts and (verdict is None or not verdict.outputs):
        return None
    plotted = nearest_to_bound([(n, s.parity) for n, s in verdicts if s.parity and s.parity.bound > 0])
    shown = {number for number, _ in plotted[:MOST_ROWS]} or {n for n, _ in verdicts[:MOST_ROWS]}
    return {
        "wide": parity_plot(plotted, _WIDE, f"{name}-wide") if plotted else "",
        "narrow": parity_plot(plotted, _NARROW, f"{name}-narrow") if plotted else "",
        "plotted": len(plotted),
        "unplotted": len(plotted) < sum(s.parity is not None and s.parity.bound > 0 for _, s in verdicts),
        "count": len(verdicts),
        "improved": sum(s.parity is not None and s.parity.result == "improved" for _, s in verdicts),
        "sites": [_site_figures(n, s) for n, s in verdicts if n in shown],
        "outputs": [_output(o) for o in verdict.outputs[:MOST_ROWS]] if verdict is not None else [],
        "inputs": [printable(line) for line in verdict.inputs] if verdict is not None else [],
    }


_TONES = {"equal": "good", "improved": "good", "failed": "bad", "inconclusive": "warn"}


def _site_figures(number: int, site: Site) -> View:
    verdict = site.parity
    assert verdict is not None
    return {
        "number": number,
        "anchor": printable(site.anchor),
        "result": verdict.result,
        "tone": _TONES[verdict.result],
        "before": figure(verdict.error_before),
        "after": figure(verdict.error_after),
        "bound": figure(verdict.bound),
        "detail": printable(verdict.detail),
    }


def _output(output: OutputFigures) -> View:
    result, tone = ("agrees", "good") if output.agrees else ("differs", "bad")
    if not output.conclusive:
        result, tone = "says nothing", "warn"
    return {
        "name": printable(output.name),
        "dtype": output.dtype,
        "result": f"{result}: {printable(output.detail)}" if output.detail else result,
        "tone": tone,
        "relative": figure(output.max_relative),
        "allowed": figure(output.bound),
        "absolute": figure(output.max_absolute),
        "ulp": f"{output.max_ulp:.3g}",
        "cosine": f"{output.cosine:.6f}",
    }
