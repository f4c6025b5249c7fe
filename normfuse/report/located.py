"""Where two models begin to differ, for people.

differ from   'y3' on, on cpu
              computed by Mul 'layer.3/scale' in A, by LayerNormalization 'layer.3/norm' in B
              number 8 of the 10 tensors that both models compute; up to 'h3' they agree
              off by 4.1e-01, bound 4.0e-06 (B=1 S=1, shifted, seed 0); 7.3e-01 absolute, 8.66e+06 ulp
"""

from __future__ import annotations

from rich.console import Console

from normfuse.parity.locate import Located, Place
from normfuse.report.printing import print_line
from normfuse.report.text import few, figure, plural, printable


def print_located(found: Located, out: Console) -> None:
    """The first value that differs on one provider, what computes it, and what is known of the cause."""
    if found.value is None or found.figures is None or found.before is None or found.after is None:
        print_line(out, "located", "yellow", _nowhere(found))
        return
    print_line(out, "differ from", "bold red", f"{printable(repr(found.value))} on, on {found.provider}")
    for line in (_who(found.before, found.after), _where(found), _figures(found), *found.changes):
        print_line(out, "", "", printable(line), body="dim")


def _nowhere(found: Located) -> str:
    if not found.shared:
        return "no computed tensor has the same name in both models, so nothing can be compared inside them"
    return f"all of the {plural(found.shared, 'tensor')} that both models compute agree on {found.provider}"


def _who(before: Place, after: Place) -> str:
    was, now = (f"{place.operator} {place.node!r}" for place in (before, after))
    return f"computed by {was} in both" if was == now else f"computed by {was} in A, by {now} in B"


def _where(found: Located) -> str:
    text = f"number {found.compared} of the {plural(found.shared, 'tensor')} that both models compute"
    names = few([repr(name) for name in found.agreeing])
    return f"{text}; up to {names} they agree" if found.agreeing else text


def _figures(found: Located) -> str:
    figures = found.figures
    assert figures is not None
    if not figures.max_relative < float("inf"):
        return figures.detail
    return f"{figures.detail}; {figure(figures.max_absolute)} absolute, {figures.max_ulp:.3g} ulp"
