"""docs/spellings.md is what benchmarks/spelling_table.py prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import spelling_table  # noqa: E402

COMMITTED = (ROOT / "docs" / "spellings.md").read_text(encoding="utf-8")
CHANGED = "python benchmarks/spelling_table.py > docs/spellings.md"


@pytest.mark.parametrize("family", ["GroupNorm", "InstanceNorm"])
def test_the_table_of_one_family_is_what_the_script_prints(family: str) -> None:
    members = {s.name: spelling_table.ending(s) for s in spelling_table.spellings() if s.family == family}
    assert spelling_table.table(family, members) in COMMITTED, CHANGED


@pytest.mark.slow
def test_the_page_is_what_the_script_prints() -> None:
    assert spelling_table.page(spelling_table.spellings()) == COMMITTED, CHANGED


def test_opsets_that_end_alike_share_a_row() -> None:
    same, other = ("a",), ("b",)
    found = {(o, "float32"): same if o < 21 else other for o in spelling_table.OPSETS}
    found |= {(o, "float64"): same for o in spelling_table.OPSETS if 13 <= o < 21}
    assert list(spelling_table.rows(found)) == [
        ("9 to 18", "float32, float64", same),
        ("21 to 24", "float32, float64", other),
    ]


def test_a_model_is_only_written_where_its_operators_take_the_type() -> None:
    norm = next(s for s in spelling_table.spellings() if s.name == "instance_norm").write()
    assert spelling_table.written(norm, 17, "float32") is not None
    assert spelling_table.written(norm, 17, "bfloat16") is None
