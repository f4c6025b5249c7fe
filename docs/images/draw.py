"""The pictures of the documentation, drawn with what draws those of the report.

python docs/images/draw.py      writes *.svg beside this file

layer-norm.svg    the example of docs/how-it-works.md, before and after
stages.svg        the way of a model through normfuse
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
from onnx import parser

import normfuse
from normfuse.report.drawing import svg
from normfuse.report.picture import Box, Picture, Sketch
from normfuse.report.sketch import with_pictures

HERE = Path(__file__).parent
MARGIN = 24
# A card of its own, so that it can be read on a page of either colour.
STYLE = """<style>
.card{fill:#fff;stroke:#d0d7de}.edge{fill:none;stroke:#8c959f}.value{fill:#f6f8fa;stroke:#8c959f}
.operator{fill:#ddf4ff;stroke:#218bff}.new{fill:#dafbe1;stroke:#2da44e}
text{font:13px system-ui,sans-serif;text-anchor:middle;fill:#1f2328;stroke:none}.detail{font-size:11px}
@media (prefers-color-scheme:dark){.card{fill:#161b22;stroke:#3d444d}.value{fill:#21262d}
.operator{fill:#0c2d6b;stroke:#388bfd}.new{fill:#04260f;stroke:#3fb950}text{fill:#e6edf3}}
</style>"""
STAGES: Sketch = (
    Box("model.onnx"),
    Box("read", "read", "checked, weights stay on disk", (0,)),
    Box("algebra", "algebra", "a polynomial for each value", (1,)),
    Box("norms", "norms", "is it a normalization?", (2,)),
    Box("folding", "folding", "is it A·c + B?", (2,)),
    Box("target", "target", "the fastest operators there", (3, 4)),
    Box("parity", "parity", "each rewrite, then the whole", (5,)),
    Box("model.fused.onnx", reads=(6,)),
    Box("report", detail="fused, folded, left and why", reads=(6,)),
)


def example() -> Picture:
    """The example of how-it-works.md, as it is and as normfuse leaves it."""
    page = (HERE.parent / "how-it-works.md").read_text("utf-8")
    found = re.search(r"```onnx\n(.*?)```", page, re.DOTALL)
    assert found is not None
    before = ir.from_proto(parser.parse_model(found[1]))
    result = normfuse.optimize(before, options=normfuse.Options(verify=False))
    assert isinstance(result.model, ir.Model)
    _, (picture,) = with_pictures(result.report.sites, before, result.model)
    return picture


def beside(*drawings: str) -> str:
    """Drawings side by side on one card."""
    sizes = [tuple(map(int, re.findall(r' (?:width|height)="(\d+)"', d)[:2])) for d in drawings]
    width = sum(w for w, _ in sizes) + MARGIN * (len(sizes) + 1)
    height = max(h for _, h in sizes) + 2 * MARGIN
    parts, x = [], MARGIN
    for drawing, (w, h) in zip(drawings, sizes, strict=True):
        parts.append(str(drawing).replace("<svg ", f'<svg x="{x}" y="{(height - h) // 2}" ', 1))
        x += w + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    card = f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    return f"{head}{STYLE}{card}{''.join(parts)}</svg>\n"


def pictures() -> Iterator[tuple[str, str]]:
    """Name and text of every picture."""
    found = example()
    yield "layer-norm.svg", beside(svg(found.before, "before"), svg(found.after, "after", highlight=True))
    yield "stages.svg", beside(svg(STAGES, "the stages of a run"))


if __name__ == "__main__":
    for name, text in pictures():
        (HERE / name).write_text(text, encoding="utf-8")
