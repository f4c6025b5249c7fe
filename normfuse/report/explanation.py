"""One node in full, for people: what became of it and why, and the polynomials that it computes.

node 'Div_12' (Div) → 'unit'
  RMSNorm   left: eps-outside-sqrt
  it computes, with x = 'hidden'
    x*(mean[-1](x^2)^(1/2) + 1e-05)^(-1)
    an RMSNorm, but epsilon is added to the deviation, not to the variance
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from normfuse.norms.reading import Reading
from normfuse.norms.refusal import REASONS
from normfuse.report.advice import ADVICE
from normfuse.report.inspection import verdict_of
from normfuse.report.printing import print_indented
from normfuse.report.record import Site
from normfuse.report.text import few, printable


@dataclass(frozen=True)
class Explanation:
    """Everything that is known of one node.

    node: its name, or that of its first output where it has none. operator: "Div". outputs: their names.
    sites: candidates that end at the node or that it is a part of.
    readings: what its first output computes, from each base value that a reduction suggests.
    """

    node: str
    operator: str
    outputs: tuple[str, ...]
    sites: tuple[Site, ...]
    readings: tuple[Reading, ...]


def print_explanation(explanation: Explanation, out: Console) -> None:
    """The node, its sites with what to do, and what it computes."""
    outputs = few([repr(name) for name in explanation.outputs])
    head = f"node {explanation.node!r} ({explanation.operator}) → {outputs}"
    out.print(Text(printable(head), style="bold"))
    for site in explanation.sites:
        _print_site(site, explanation, out)
    readings = _telling(explanation.readings)
    for reading in readings:
        _print_reading(reading, out)
    if not explanation.sites and not readings:
        out.print("  no normalization ends here or runs through here, and nothing of it folds into weights")


def _print_site(site: Site, explanation: Explanation, out: Console) -> None:
    part = "" if site.output in explanation.outputs else f"  part of what computes {site.output!r}"
    print_indented(out, Text.assemble(f"{printable(site.kind)}   ", verdict_of(site), printable(part)), 2)
    if site.detail:
        print_indented(out, Text(printable(site.detail)), 4)
    if site.spelling:
        print_indented(out, Text(f"found as {printable(site.spelling)}", style="dim"), 4)
    for reason in dict.fromkeys(r for r in (site.reason, site.outside) if r is not None):
        print_indented(out, Text(f"{REASONS.get(reason, '')}"), 4)
        if reason in ADVICE:
            print_indented(out, Text(ADVICE[reason], style="dim"), 4)


def _print_reading(reading: Reading, out: Console) -> None:
    base = printable(repr(reading.base))
    if not reading.polynomial:
        print_indented(out, f"the walk from {base} ends here", 2)
        print_indented(out, Text(_because(reading)), 4)
        return
    print_indented(out, f"it computes, with x = {base}", 2)
    print_indented(out, Text(printable(reading.polynomial), style="cyan"), 4)
    if reading.reason is not None:
        print_indented(out, Text(f"{_article(reading.kind)}, but {_because(reading)}"), 4)
    elif reading.kind is not None:
        print_indented(out, Text(printable(f"{_article(reading.kind)} {reading.detail}")), 4)


def _telling(readings: Sequence[Reading]) -> list[Reading]:
    """What is a norm, or nearly one, or ended; where there is nothing of it, all that is known."""
    telling = [r for r in readings if r.kind is not None or r.reason is not None]
    return telling or list(readings)


def _because(reading: Reading) -> str:
    reason = REASONS.get(reading.reason or "", "")
    return printable("; ".join(part for part in (reason, reading.detail) if part))


def _article(kind: str | None) -> str:
    name = printable(kind or "norm")
    return f"{'an' if name.startswith(('RMS', 'L1', 'L2', 'Instance', 'Affine')) else 'a'} {name}"
