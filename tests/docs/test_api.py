"""The page of public names has them all, and each is what it is called."""

from __future__ import annotations

import re
from pathlib import Path

from blocks import DOCS

import normfuse

NAMES = [name for name in normfuse.__all__ if name != "__version__"]


def test_the_page_has_every_public_name() -> None:
    listed = re.findall(r"^::: normfuse\.(\w+)", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """Importing `normfuse/NAME.py` puts the module where the function was; torch is meant to be one."""
    package = Path(normfuse.__file__).parent
    modules = [name for name in NAMES if (package / f"{name}.py").exists() or (package / name).is_dir()]
    assert modules == ["torch"]
