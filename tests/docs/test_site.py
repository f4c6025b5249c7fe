"""The site builds without a warning, and asks nothing of the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import ROOT

pytest.importorskip("mkdocs")
yaml = pytest.importorskip("yaml")


@pytest.mark.slow
def test_it_builds_and_every_file_that_a_page_loads_is_in_it(tmp_path: Path) -> None:
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    done = subprocess.run(line, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loads = re.findall(r'<(?:script|img|source|iframe)[^>]*?\bsrc="([^"]+)"', page.read_text("utf-8"))
        loads += re.findall(
            r'<link[^>]*?rel="(?:stylesheet|preload|icon)"[^>]*?href="([^"]+)"', page.read_text("utf-8")
        )
        assert [name for name in loads if re.match(r"(https?:)?//", name)] == []
        for name in loads:
            if not name.startswith(("data:", "/")):
                assert (page.parent / name.partition("?")[0]).exists(), (page, name)


def test_every_page_of_the_navigation_is_there() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    names = re.findall(r"'([^']+\.md)'", str(config["nav"]))
    assert [name for name in names if not (ROOT / "docs" / name).exists()] == []
    assert {p.name for p in (ROOT / "docs").glob("*.md")} <= set(names)
