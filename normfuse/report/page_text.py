"""The page of a reason code as HTML, for a report that stands alone: links to other pages are plain text."""

from __future__ import annotations

import re
from functools import lru_cache

from markdown_it import MarkdownIt
from markupsafe import Markup

from normfuse.report.reason_pages import page


@lru_cache(maxsize=64)
def page_html(code: str) -> Markup:
    """The explanation of a code, without its title. Raises UsageError for a code that does not exist."""
    text = page(code)
    body = text.partition("\n")[2] if text.startswith("# ") else text
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    html = str(markdown.disable(["link", "image", "autolink"]).render(_without_links(body)))
    return Markup(html.replace("<h2>", "<h4>").replace("</h2>", "</h4>"))


def _without_links(text: str) -> str:
    """[the page](other.md) -> the page; what is in code blocks has no such form."""
    return re.sub(r"\[([^\]\n]+)\]\([^)\s]+\)", r"\1", text)
