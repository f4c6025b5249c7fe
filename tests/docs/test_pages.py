"""The pages of docs/ say what is so: links lead somewhere, examples end as shown, no field is left out."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnx import parser

import normfuse
from normfuse.norms.refusal import REASONS
from normfuse.report import schema
from normfuse.report.reason_pages import file_name
from normfuse.targets import TARGETS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in set(re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), target


def test_the_index_leads_to_every_page() -> None:
    index = text("index.md")
    for page in DOCS.glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index
    for code, meaning in REASONS.items():
        assert f"| [`{code}`](reasons/{file_name(code)}) | {meaning} |" in index


def test_the_example_of_how_it_works_ends_as_shown() -> None:
    before, after = map(
        parser.parse_model, re.findall(r"```onnx\n(.*?)```", text("how-it-works.md"), re.DOTALL)
    )
    result = normfuse.optimize(before)
    assert isinstance(result.model, onnx.ModelProto)
    (mine,), (shown,) = result.model.graph.node, after.graph.node
    assert (mine.op_type, list(mine.input)) == (shown.op_type, list(shown.input))
    assert {a.name: (a.i, a.f) for a in mine.attribute} == {a.name: (a.i, a.f) for a in shown.attribute}


def test_the_page_on_the_report_names_every_field() -> None:
    page = text("report.md")
    described = schema()
    parts = [
        described,
        *(
            described["$defs"][part]
            for part in ("site", "site_verdict", "model_verdict", "output", "placement")
        ),
        *(described["$defs"][part] for part in ("picture", "box", "latency", "repeat")),
    ]
    missing = [name for part in parts for name in part["properties"] if f"`{name}`" not in page]
    assert missing == []


def test_the_page_on_targets_names_every_target() -> None:
    page = text("targets.md")
    assert [name for name in TARGETS if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_speaks_of_this_machine(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"(^|[\s(`])/(work|tmp|home|root)/", page)
