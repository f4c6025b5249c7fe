"""The page in a real browser, at desk and phone width, light and dark: it fits, and nothing complains."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import browser
import pytest
from report_samples import FULL, ILLUSTRATED
from test_html import everywhere_evil

from normfuse.report.fleet import Outcome
from normfuse.report.html import to_html

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.found() is None, reason="there is no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    folder = Path(tempfile.mkdtemp())
    with browser.Browser(folder) as opened:
        yield opened
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    long = "encoder.layers.11.attention.output.LayerNorm/ReduceMean_output_0" * 3
    sites = tuple(replace(site, anchor=f"{long}{k}") for k, site in enumerate(ILLUSTRATED.sites))
    outcomes = {
        "usual": [Outcome("model.onnx", ILLUSTRATED)],
        "long": [Outcome(long, replace(ILLUSTRATED, model=long, sites=sites))],
        "several": [Outcome(long, FULL), Outcome("b", error=long, exit_code=3), Outcome("c", ILLUSTRATED)],
        "evil": [everywhere_evil()],
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, those in outcomes.items():
        text = to_html(those).replace("<details>", "<details open>")  # what is folded must fit as well
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in outcomes}


@pytest.mark.parametrize("name", ["usual", "long", "several", "evil"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_and_is_silent(
    chromium: browser.Browser, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    seen = chromium.look(pages[name], width, dark=dark)
    assert seen.messages == []
    assert seen.requests == [pages[name].resolve().as_uri()]
    assert (seen.width, seen.wider) == (width, [])
    assert (seen.background == "rgb(255, 255, 255)") != dark


def test_the_browser_notices_what_is_wrong(chromium: browser.Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<meta name=viewport content=width=device-width><body><p style='width:900px'>wide"
                   "<script>console.log('here')</script>")  # fmt: skip
    seen = chromium.look(bad, 390)
    assert seen.wider == ["P."]
    assert len(seen.messages) == 1
