"""Drawings: a box for each operator, in the page's colours, with nothing in them that could act."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from report_samples import PICTURE

from normfuse.report.drawing import MOST_LETTERS, svg
from normfuse.report.picture import Box


def test_every_operator_and_every_edge_is_drawn() -> None:
    root = ET.fromstring(str(svg(PICTURE.before, "before")))
    assert [text.text for text in root.iter("text") if text.get("class") == "label"] == [
        box.label for box in PICTURE.before
    ]
    assert len(list(root.iter("path"))) == sum(len(box.reads) for box in PICTURE.before)
    assert root.findtext("title") == "before"


def test_what_is_new_stands_out() -> None:
    assert 'class="operator new"' in svg(PICTURE.after, "after", highlight=True)
    assert 'class="operator new"' not in svg(PICTURE.after, "after")


def test_names_are_text_and_long_ones_end() -> None:
    evil = "<script>alert(1)</script>\"' onload=x" + "x" * 500
    drawn = str(svg((Box("input"), Box(evil, evil, evil, (0,))), evil))
    root = ET.fromstring(drawn)
    assert {element.tag for element in root.iter()} == {"svg", "title", "g", "rect", "text", "path"}
    assert all(len(text.text or "") <= MOST_LETTERS for text in root.iter("text"))
    assert float(root.get("width", "0")) < 400
