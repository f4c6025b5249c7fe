"""What MkDocs cannot do by itself: two pages are files of the repository's root, whose links start there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
INCLUDED = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page, before it is rendered."""
    source = INCLUDED.get(page.file.src_uri)
    return markdown if source is None else (ROOT / source).read_text("utf-8").replace("](docs/", "](")
