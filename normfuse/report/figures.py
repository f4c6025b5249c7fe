"""Parity as a plot: for each site how far it was from float64 before, how far after, and how far it may be.

    1e-5 ┤  ─  ─  ─      the bound
         │  ○            before
    1e-7 ┤  ●  ○●        after
         └──1──2──       the site's number in the table below

Drawn by matplotlib, with colours that the page replaces by its own, light or dark.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from normfuse.parity.verdict import SiteVerdict

MOST_SITES = 400
"""Above this the plot shows those that came nearest to their bounds."""
MOST_APART = 60
"""Up to this, before and after stand side by side, so that none hides the other."""
MOST_EXPONENT = 30
"""Beyond this an error is drawn as 0 or as infinite."""
# matplotlib knows no CSS variables, so each colour of the page is drawn as one that nothing else has.
_COLOURS = {"#010203": "var(--ink)", "#010204": "var(--line)", "#010205": "var(--before)",
            "#010206": "var(--after)", "#010207": "var(--muted)", "#010208": "var(--page)"}  # fmt: skip
_INK, _LINE, _BEFORE, _AFTER, _MUTED, _PAGE = _COLOURS
Numbered = tuple[int, SiteVerdict]


def parity_plot(verdicts: Sequence[Numbered], width: float, salt: str) -> Markup:
    """The plot as inline SVG.

    verdicts: sites by their number. width: in inches, which sets how large the letters look.
    salt: makes the names inside the drawing unlike those of another one on the same page.
    """
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 10, "axes.linewidth": 0.8}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, 3.2), layout="constrained")
        axes = figure.subplots()
        _draw(axes, verdicts)
        _dress(axes, verdicts)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue(), f"Error against float64 of {len(verdicts)} sites, before and after")


def nearest_to_bound(verdicts: Sequence[Numbered]) -> list[Numbered]:
    """The sites that are plotted, in their order: all, or those that used most of their bounds."""

    def used(item: Numbered) -> float:
        verdict = item[1]
        return verdict.error_after / verdict.bound if verdict.bound else verdict.error_after

    return sorted(sorted(verdicts, key=used, reverse=True)[:MOST_SITES])


def _draw(axes: Any, verdicts: Sequence[Numbered]) -> None:
    height = _heights(verdicts)
    apart = 0.11 if len(verdicts) <= MOST_APART else 0.0
    left, right = ([k + shift for k in range(len(verdicts))] for shift in (-apart, apart))
    before = [height(v.error_before) for _, v in verdicts]
    after = [height(v.error_after) for _, v in verdicts]
    bound = [height(v.bound) for _, v in verdicts]
    dot = max(12.0, min(42.0, 4000 / max(len(verdicts), 1)))
    axes.plot([left, right], [before, after], color=_LINE, linewidth=1.2, zorder=1)
    axes.scatter(range(len(verdicts)), bound, marker="_", s=1.8 * dot, color=_MUTED, linewidths=1.4,
                 label="bound", zorder=2)  # fmt: skip
    axes.scatter(left, before, s=dot, facecolors=_PAGE, edgecolors=_BEFORE, linewidths=1.5, label="before",
                 zorder=3)  # fmt: skip
    axes.scatter(right, after, s=dot, color=_AFTER, linewidths=0, label="after", zorder=4)


def _dress(axes: Any, verdicts: Sequence[Numbered]) -> None:
    low, high = _range(verdicts)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylim(low / 2, high * 2)
    exponents = range(round(math.log10(low)), round(math.log10(high)) + 1)
    between = list(exponents)[1 : -1 : max(1, len(exponents) // 7)]
    axes.set_yticks([low, *(10.0**k for k in between), high])
    axes.set_xlim(-0.8, len(verdicts) - 0.2)
    step = max(1, math.ceil(len(verdicts) / 20))
    axes.set_xticks(range(0, len(verdicts), step), [str(number) for number, _ in verdicts[::step]])
    axes.yaxis.set_major_formatter(lambda value, _: _tick(value, low, high))
    axes.set_xlabel("site, by its number in the table", color=_MUTED)
    axes.grid(axis="y", color=_LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_MUTED, which="both", length=0)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(_LINE)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, labelcolor=_INK,
                borderaxespad=0.2, columnspacing=1, handletextpad=0.2)  # fmt: skip


def _figures(verdicts: Sequence[Numbered]) -> list[float]:
    return [value for _, v in verdicts for value in (v.error_before, v.error_after, v.bound)]


def _range(verdicts: Sequence[Numbered]) -> tuple[float, float]:
    """From what 0 is drawn at to what infinity is drawn at."""
    numbers = [value for value in _figures(verdicts) if 0 < value < math.inf]
    low = math.floor(math.log10(min(numbers, default=1e-8)))
    high = math.ceil(math.log10(max(numbers, default=1e-6)))
    return 10.0 ** max(low - 1, -MOST_EXPONENT), 10.0 ** min(high + 1, MOST_EXPONENT)


def _heights(verdicts: Sequence[Numbered]) -> Callable[[float], float]:
    low, high = _range(verdicts)
    return lambda value: high if math.isnan(value) else min(max(value, low), high)


def _tick(value: float, low: float, high: float) -> str:
    if value <= low * 1.01:
        return "0"
    return "∞" if value >= high * 0.99 else f"1e{round(math.log10(value))}"


def _inline(svg: str, title: str) -> Markup:
    """The drawing alone, in the page's colours: no prologue, no metadata, no size of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.S)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    size = re.search(r'viewBox="[^"]*"', svg)
    assert size is not None
    head = Markup('<svg class="plot" role="img" {}><title>{}</title>').format(Markup(size[0]), title)
    body = svg[svg.index(">") + 1 :]
    for drawn, variable in _COLOURS.items():
        body = body.replace(drawn, variable)
    return head + Markup(body)
