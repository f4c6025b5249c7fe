"""Docstrings as the API page shows them: what is said of each parameter becomes an item of a list.

path: the file to write. options: as of   ->   - `path`: the file to write. options: as of
    `normfuse.optimize`.                         `normfuse.optimize`.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_NAME = re.compile(r"^(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (?=\S)")
_SECOND = re.compile(r"(?<=[.;] )([a-z_]\w*(?:, [a-z_]\w*)*): (?=\S)")


def listed(text: str) -> str:
    """A docstring with its lines "name: text", and the indented ones behind them, as a list."""
    lines: list[str] = []
    for line in text.splitlines():
        is_item = _NAME.match(line)
        if is_item and lines and lines[-1] and not lines[-1].startswith(("- ", "  ")):
            lines.append("")
        if is_item:
            whole = _SECOND.sub(lambda m: f"\n- `{m[1]}`: ", line[is_item.end() :])
            lines += f"- `{is_item[1]}`: {whole}".split("\n")
        elif line.startswith("    ") and lines and lines[-1].startswith(("- ", "  ")):
            lines += _SECOND.sub(lambda m: f"\n- `{m[1]}`: ", f"  {line.strip()}").split("\n")
        else:
            lines.append(line)
    return "\n".join(line.rstrip() for line in lines)


class Lists(griffe.Extension):
    """Griffe's hook: every object that has been read, once."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)
