"""Imports run one way: a room uses those before it, and none after."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "normfuse"
ORDER = [
    {"errors", "options", "streams", "versions"},
    {"graph"},
    {"model_io", "algebra"},
    {"norms"},
    {"folding"},
    {"targets"},
    {"parity"},
    {"bench"},
    {"report"},
    {"pipeline"},
    {"api"},
    {"explaining", "fleet", "torch"},
    {"integrations"},
    {"cli"},
]
"""The rooms, and the modules at the top of the package; those of one set do not use each other."""
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
BASE_USES = {"options": {"errors"}, "streams": {"errors"}}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and room of all that a module imports of normfuse, at any depth, for type checkers too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, *rest = name.split(".")
            if package == "normfuse" and rest and rest[0] != "__version__":
                yield node.lineno, rest[0]


def breaches(room: str, source: str) -> list[str]:
    """What a module of a room imports, and must not."""
    return [
        f"line {line}: {room} uses {other}"
        for line, other in imported(ast.parse(source))
        if other != room and not (LEVEL[other] < LEVEL[room] or other in BASE_USES.get(room, ()))
    ]


def test_every_module_has_its_place_in_the_order() -> None:
    found = {room_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert found == set(LEVEL)


def test_no_module_uses_a_later_room() -> None:
    found = {
        str(path.relative_to(PACKAGE)): wrong
        for path in sorted(PACKAGE.rglob("*.py"))
        if room_of(path) != "__init__" and (wrong := breaches(room_of(path), path.read_text("utf-8")))
    }
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "import normfuse.cli",
        "from normfuse import report",
        "def f():\n    from normfuse.api import optimize",
        "if TYPE_CHECKING:\n    from normfuse.report.record import Site",
    ],
)
def test_a_use_of_a_later_room_is_found_wherever_it_stands(source: str) -> None:
    assert len(breaches("parity", source)) == 1
    assert not breaches("parity", "from normfuse.errors import UsageError\nimport numpy")
