"""The page of each reason code: what it means, an example, what to do; in docs/reasons, and in the wheel."""

from __future__ import annotations

from pathlib import Path

from normfuse.errors import unknown_value
from normfuse.norms.refusal import REASONS

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "reasons", _PACKAGE.parent / "docs" / "reasons")
"""Where a wheel has them, and where a checkout has them."""


def file_name(code: str) -> str:
    """exponent!=2 -> exponent-not-2.md"""
    return code.replace("!=", "-not-").replace("=", "-") + ".md"


def page(code: str) -> str:
    """The Markdown text of a code's page.

    Raises UsageError with the closest code for one that does not exist.
    """
    known = {file_name(c).removesuffix(".md"): c for c in REASONS}
    code = known.get(code, code)
    if code not in REASONS:
        raise unknown_value("reason code", code, REASONS)
    for folder in _FOLDERS:
        path = folder / file_name(code)
        if path.is_file():
            text = path.read_text("utf-8")
            return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("<!--"))
    return f"# `{code}`\n\n{REASONS[code]}\n"
