"""The tables of docs/command-line.md: every argument and option, in the words of --help.

    python tests/docs/command_line.py      writes them anew

Each stands between <!-- options: COMMAND --> and <!-- end -->.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from normfuse.cli import entry

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
TABLE = re.compile(r"(?P<head><!-- options: (?P<command>[a-z-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def table(command: str) -> str:
    """Every argument and option of a command, a row each, in the order of --help."""
    rows = ["", "| | |", "| --- | --- |"]
    rows += [f"| {name} | {text} |" for name, text in _parameters(command)]
    return "\n".join(rows) + "\n\n"


def _parameters(command: str) -> Iterator[tuple[str, str]]:
    for parameter in entry._typer(command).params:
        if parameter.param_type_name == "argument":
            yield f"`{parameter.metavar}`", _escaped(parameter.help)
        elif not parameter.hidden:
            yield _names(parameter), _escaped(parameter.help + _default(parameter))


def _names(parameter: Any) -> str:
    metavar = "" if parameter.is_flag else f" {parameter.metavar or 'PATH'}"
    names = [f"{name}{metavar}" for name in parameter.opts]
    # A bar within backticks is read in two ways inside a table.
    return ", ".join(f"<code>{n}</code>".replace("|", "&#124;") if "|" in n else f"`{n}`" for n in names)


def _default(parameter: Any) -> str:
    shown = parameter.show_default and not parameter.is_flag and parameter.default not in (None, ())
    return f" Default: {parameter.default}." if shown else ""


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def refreshed(page: str) -> str:
    """The page with its tables as they are now."""
    return TABLE.sub(lambda match: match["head"] + table(match["command"]), page)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text("utf-8")), encoding="utf-8")
