"""Every reason code has its page, and the example on it ends with that code and in the words on the page."""

from __future__ import annotations

import re

import pytest
from reason_pages import PAGES, example, inspected, printed, said

from normfuse.norms.refusal import REASONS
from normfuse.report.reason_pages import file_name


def page(code: str) -> str:
    return (PAGES / file_name(code)).read_text(encoding="utf-8")


def words(text: str) -> list[str]:
    """The words of a text, sorted: names that a detail lists may come in any order."""
    return sorted(re.findall(r"[^\s,]+", text))


def test_every_code_has_a_page_and_no_page_is_without_a_code() -> None:
    assert {path.name for path in PAGES.glob("*.md")} == {file_name(code) for code in REASONS}


def test_the_name_of_a_page_is_a_file_name_everywhere() -> None:
    assert file_name("exponent!=2") == "exponent-not-2.md"
    assert file_name("keepdims=0") == "keepdims-0.md"
    names = [file_name(code) for code in REASONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("code", REASONS)
def test_the_example_ends_with_the_code(code: str) -> None:
    sites = inspected(page(code)).sites
    assert [site.reason or site.outside for site in sites] == [code]
    assert sites[0].status in ("left", "fused", "rolled-back")


@pytest.mark.parametrize("code", REASONS)
def test_the_page_quotes_what_is_printed(code: str) -> None:
    """`python tests/docs/reason_pages.py` writes the quotes anew."""
    assert words(said(page(code))) == words(printed(inspected(page(code))))


@pytest.mark.parametrize("code", REASONS)
def test_the_page_says_what_it_means_why_and_what_to_do(code: str) -> None:
    text = page(code)
    assert f"# `{code}`\n" in text
    assert [line for line in text.splitlines() if line.startswith("## ")][-1] == "## What you can do"
    assert text.count("\n## Why it ") == 1


@pytest.mark.parametrize("code", REASONS)
def test_the_example_is_small(code: str) -> None:
    assert len(example(page(code)).graph.node) <= 12
