"""What scripts write into the documentation is what they would write now."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import command_line
import pytest
from blocks import DOCS, ROOT

from normfuse.cli import entry


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_what_the_script_draws() -> None:
    """`python docs/images/draw.py` draws them anew."""
    for name, text in loaded(DOCS / "images" / "draw.py").pictures():
        assert (DOCS / "images" / name).read_text("utf-8") == text, name


def test_the_options_are_those_of_the_commands() -> None:
    """`python tests/docs/command_line.py` writes them anew."""
    page = command_line.PAGE.read_text("utf-8")
    assert command_line.refreshed(page) == page


@pytest.mark.parametrize("command", [entry.MAIN, *entry.COMMANDS])
def test_no_command_and_no_option_is_left_out(command: str) -> None:
    page = command_line.PAGE.read_text("utf-8")
    assert f"<!-- options: {command} -->" in page
    assert command == entry.MAIN or f"\n## normfuse {command} " in page
    section = page.partition(f"<!-- options: {command} -->")[2].partition("<!-- end -->")[0]
    for parameter in entry._typer(command).params:
        for name in parameter.opts:
            assert parameter.hidden or not name.startswith("-") or re.search(rf"[`>]{name}[` <]", section)


def test_included_pages_are_files_of_the_repository() -> None:
    for page, source in loaded(DOCS / "hooks.py").INCLUDED.items():
        assert (ROOT / source).exists()
        assert f"(../{source})" in (DOCS / page).read_text("utf-8")


def test_parameters_in_a_docstring_become_a_list() -> None:
    pytest.importorskip("griffe")
    text = "Writes.\n\npath: the file. options: as of\n    optimize.\nseed: of inputs.\n\nRaises: nothing."
    shown = "- `path`: the file.\n- `options`: as of\n  optimize.\n- `seed`: of inputs.\n\nRaises: nothing."
    assert loaded(DOCS / "docstrings.py").listed(text) == f"Writes.\n\n{shown}"
