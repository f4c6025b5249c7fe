"""Layouts: boxes stand apart, every edge goes down, and none crosses a box that it has nothing to do with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normfuse.report.layout import Layout, layered

Size = tuple[float, float]

LAYER_NORM = [(), (0,), (0, 1), (2,), (3,), (4,), (5,), (2, 6), (7,), (8,)]
DIAMOND = [(), (0,), (0,), (1, 2)]
LATE_SOURCE = [(), (0,), (1,), (), (2, 3)]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[tuple[int, ...]]]:
    count = draw(st.integers(1, 12))
    reads = [
        tuple(draw(st.lists(st.integers(0, k - 1), max_size=3, unique=True))) if k else ()
        for k in range(count)
    ]
    sizes = [(draw(st.floats(20, 200)), draw(st.floats(20, 60))) for _ in range(count)]
    return sizes, reads


def check(place: Layout, sizes: Sequence[Size], reads: Sequence[Sequence[int]]) -> None:
    spans = [
        (x - w / 2, x + w / 2, y - h / 2, y + h / 2)
        for (x, y), (w, h) in zip(place.boxes, sizes, strict=True)
    ]
    for a, b in combinations(spans, 2):
        assert a[1] < b[0] or b[1] < a[0] or a[3] < b[2] or b[3] < a[2], "two boxes overlap"
    for left, right, top, bottom in spans:
        assert min(left, top) > -0.01
        assert right < place.width + 0.01
        assert bottom < place.height + 0.01
    for points in place.edges:
        assert all(upper[1] <= lower[1] + 1e-6 for upper, lower in pairwise(points)), "an edge goes up"
        for (x, y), (_, end) in list(pairwise(points))[1::2]:  # the parts that pass a layer, straight
            for left, right, top, bottom in spans:
                assert not (left < x < right and y < bottom and top < end), "an edge crosses a box"
    assert len(place.edges) == sum(len(set(above)) for above in reads)


@given(graphs())
def test_boxes_stand_apart_and_edges_go_down_beside_them(
    graph: tuple[list[Size], list[tuple[int, ...]]],
) -> None:
    sizes, reads = graph
    check(layered(sizes, reads), sizes, reads)


@pytest.mark.parametrize("reads", [LAYER_NORM, DIAMOND, LATE_SOURCE, [()]])
def test_the_usual_graphs_are_placed(reads: list[tuple[int, ...]]) -> None:
    sizes = [(60.0, 30.0)] * len(reads)
    check(layered(sizes, reads), sizes, reads)


def test_a_second_source_stands_right_above_its_reader() -> None:
    place = layered([(60.0, 30.0)] * 5, LATE_SOURCE)
    assert place.boxes[3][1] == place.boxes[2][1]


def test_an_edge_that_passes_outside_all_boxes_is_one_line() -> None:
    widths = [60.0, 120.0, 60.0, 60.0, 120.0, 40.0, 60.0, 60.0, 60.0, 60.0]
    place = layered([(width, 30.0) for width in widths], LAYER_NORM)
    longest = max(place.edges, key=len)
    assert len(longest) > 4
    assert len({x for x, _ in longest[1:-1]}) == 1


def test_a_value_that_is_read_twice_has_one_edge() -> None:
    assert len(layered([(60.0, 30.0)] * 2, [(), (0, 0)]).edges) == 1
