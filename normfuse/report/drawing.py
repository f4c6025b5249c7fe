"""A sketch as SVG: boxes for operators, rounded ones for values, lines that go down.

Colours and fonts are the page's: the drawing only has classes. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from normfuse.report.layout import Point, layered
from normfuse.report.picture import Box, Sketch
from normfuse.report.text import printable

LABEL, DETAIL = 7.3, 6.2
"""Width of a letter of each of the two lines of a box, in pixels."""
PADDING, LINE, EDGE = 18.0, 15.0, 2.0
MOST_LETTERS = 30


def svg(sketch: Sketch, title: str, highlight: bool = False) -> Markup:
    """A sketch as an inline SVG element of its natural size.

    title: what it says to those who do not see it. highlight: whether operators stand out.
    """
    texts = [(_clipped(box.label), _clipped(box.detail)) for box in sketch]
    sizes = [_size(label, detail) for label, detail in texts]
    place = layered(sizes, [box.reads for box in sketch])
    parts = [_edge(points) for points in place.edges]
    for box, text, size, centre in zip(sketch, texts, sizes, place.boxes, strict=True):
        parts.append(_box(box, text, size, centre, highlight))
    width, height = place.width + 2 * EDGE, place.height + 2 * EDGE
    box_of_view = f"{-EDGE:g} {-EDGE:g} {width:.0f} {height:.0f}"
    head = Markup('<svg class="graph" role="img" width="{}" height="{}" viewBox="{}"><title>{}</title>')
    return head.format(f"{width:.0f}", f"{height:.0f}", box_of_view, printable(title)) + Markup(
        "".join(parts) + "</svg>"
    )


def _clipped(text: str) -> str:
    text = printable(text)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def _size(label: str, detail: str) -> tuple[float, float]:
    width = max(LABEL * len(label), DETAIL * len(detail)) + PADDING
    return width, LINE * (2 if detail else 1) + 10


def _edge(points: Sequence[Point]) -> Markup:
    """A line that leaves a box downwards, passes each layer straight, and enters a box from above."""
    (x, y), *rest = points
    path = f"M{x:.1f} {y:.1f}"
    for k, (next_x, next_y) in enumerate(rest):
        if k % 2:  # through a layer
            path += f"V{next_y:.1f}"
        else:
            middle = (y + next_y) / 2
            path += f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}"
        x, y = next_x, next_y
    return Markup('<path class="edge" d="{}"/>').format(path)


def _box(
    box: Box, text: tuple[str, str], size: tuple[float, float], centre: Point, highlight: bool
) -> Markup:
    (width, height), (x, y) = size, centre
    kind = "value" if not box.operator else "operator new" if highlight else "operator"
    shape = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="{}"/>').format(
        kind,
        f"{x - width / 2:.1f}",
        f"{y - height / 2:.1f}",
        f"{width:.1f}",
        f"{height:.1f}",
        4 if box.operator else height / 2,
    )
    label, detail = text
    first = y + 4 if not detail else y - LINE / 2 + 4
    lines = Markup('<text class="label" x="{}" y="{}">{}</text>').format(f"{x:.1f}", f"{first:.1f}", label)
    if detail:
        lines += Markup('<text class="detail" x="{}" y="{}">{}</text>').format(
            f"{x:.1f}", f"{first + LINE:.1f}", detail
        )
    whole = Markup("<title>{}</title>").format(printable(f"{box.operator or box.label} {box.detail}".strip()))
    return Markup('<g class="{}">{}{}{}</g>').format(kind, whole, shape, lines)
