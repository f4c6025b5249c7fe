"""Figures as people read them."""

from __future__ import annotations

import pytest

from normfuse.report.text import few, figure, plural, printable, seconds, size


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1 kB"), (4_210_000, "4.21 MB"),
     (999_999, "1 MB"), (14 * 10**9, "14 GB")],
)  # fmt: skip
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("value", "text"), [(0.0123, "12 ms"), (1.25, "1.2 s"), (71.3, "71 s")])
def test_times(value: float, text: str) -> None:
    assert seconds(value) == text


def test_words() -> None:
    assert plural(1, "node") == "1 node"
    assert plural(2000, "node") == "2,000 nodes"
    assert few(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert [figure(0), figure(3.14e-7), figure(float("inf"))] == ["0", "3.1e-07", "inf"]


def test_control_characters_are_written_out() -> None:
    assert printable("naïve / 名前") == "naïve / 名前"
    assert printable("a\tb\x1b[0m\ud800") == r"a\tb\x1b[0m\ud800"
