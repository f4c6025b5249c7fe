"""Places a small graph in layers, from top to bottom, so that every edge goes down and none crosses a box.

    layers      by the longest way from a source; a second source stands right above its first reader
    ways        an edge over several layers gets a place of its own in each of them
    order       in each layer by the mean place of the neighbours, from above and from below in turn
    positions   as near to the mean of the neighbours as the boxes beside it allow

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GAP, LAYER_GAP, WAY = 18.0, 22.0, 8.0
SWEEPS = 8

Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Where everything stands, in the units of the sizes that were given.

    boxes: the centre of each box. edges: the points of each edge, from the bottom of a box to the top of
    another, two for each layer that it passes.
    """

    width: float
    height: float
    boxes: tuple[Point, ...]
    edges: tuple[tuple[Point, ...], ...]


def layered(sizes: Sequence[tuple[float, float]], reads: Sequence[Sequence[int]]) -> Layout:
    """Place boxes of the given widths and heights.

    reads: for each box the boxes above it, by index; an acyclic graph in topological order.
    """
    layer = _layers(reads)
    graph = _Graph([width for width, _ in sizes], layer)
    ways = [graph.way(a, b) for b, above in enumerate(reads) for a in dict.fromkeys(above)]
    graph.order()
    x = graph.positions()
    graph.straighten(ways, x)
    heights = [max(sizes[k][1] for k in row if k < len(sizes)) for row in graph.rows]
    tops = [sum(heights[:i]) + i * LAYER_GAP for i in range(len(heights))]
    boxes = tuple((x[k], tops[layer[k]] + heights[layer[k]] / 2) for k in range(len(sizes)))
    edges = []
    for way in ways:
        first, *between, last = way
        points = [(x[first], boxes[first][1] + sizes[first][1] / 2)]
        for k in between:
            row = graph.layer[k]
            points += [(x[k], tops[row]), (x[k], tops[row] + heights[row])]
        edges.append((*points, (x[last], boxes[last][1] - sizes[last][1] / 2)))
    width = max(x[k] + graph.widths[k] / 2 for k in range(len(graph.widths)))
    return Layout(width, tops[-1] + heights[-1], boxes, tuple(edges))


def _layers(reads: Sequence[Sequence[int]]) -> list[int]:
    layer: list[int] = []
    for above in reads:
        layer.append(max((layer[k] + 1 for k in above), default=0))
    for k in range(1, len(reads)):
        readers = [layer[b] for b, above in enumerate(reads) if k in above]
        if not reads[k] and readers:
            layer[k] = max(min(readers) - 1, 0)
    return layer


class _Graph:
    """Boxes and the places that edges pass, by index; each in one row."""

    def __init__(self, widths: Sequence[float], layer: Sequence[int]) -> None:
        self.widths, self.layer = list(widths), list(layer)
        self.above: dict[int, list[int]] = {k: [] for k in range(len(widths))}
        self.below: dict[int, list[int]] = {k: [] for k in range(len(widths))}
        self.rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
        for k, row in enumerate(layer):
            self.rows[row].append(k)

    def way(self, a: int, b: int) -> list[int]:
        """The box a, a place in every layer between, and the box b."""
        way = [a]
        for row in range(self.layer[a] + 1, self.layer[b]):
            k = len(self.widths)
            self.widths.append(WAY)
            self.layer.append(row)
            self.rows[row].append(k)
            self.above[k], self.below[k] = [], []
            way.append(k)
        way.append(b)
        for upper, lower in pairwise(way):
            self.below[upper].append(lower)
            self.above[lower].append(upper)
        return way

    def order(self) -> None:
        """Order each row by its neighbours, so that few edges cross."""
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            near = self.above if down else self.below
            place = {k: i / max(len(row) - 1, 1) for row in self.rows for i, k in enumerate(row)}
            for row in self.rows if down else reversed(self.rows):
                row.sort(key=lambda k, near=near, place=place: _mean(near[k], place, place[k]))  # type: ignore[misc]
                place.update((k, i / max(len(row) - 1, 1)) for i, k in enumerate(row))

    def positions(self) -> list[float]:
        """The horizontal centre of each, the leftmost edge at 0."""
        x = [0.0] * len(self.widths)
        for row in self.rows:
            self._spread(row, dict.fromkeys(row, 0.0), x)
        for sweep in range(2 * SWEEPS):
            near = self.above if sweep % 2 == 0 else self.below
            for row in self.rows if sweep % 2 == 0 else reversed(self.rows):
                self._spread(row, {k: _mean(near[k], x, x[k]) for k in row}, x)
        left = min(value - width / 2 for value, width in zip(x, self.widths, strict=True))
        return [value - left for value in x]

    def straighten(self, ways: Sequence[Sequence[int]], x: list[float]) -> None:
        """Let an edge that passes outside all boxes pass in one line, as far out as it has to anywhere."""
        for way in ways:
            between = way[1:-1]
            rows = [self.rows[self.layer[k]] for k in between]
            if len(between) > 1 and all(row[-1] == k for row, k in zip(rows, between, strict=True)):
                line = max(x[k] for k in between)
            elif len(between) > 1 and all(row[0] == k for row, k in zip(rows, between, strict=True)):
                line = min(x[k] for k in between)
            else:
                continue
            for k in between:
                x[k] = line

    def _spread(self, row: Sequence[int], wish: Mapping[int, float], x: list[float]) -> None:
        """Give the boxes of a row their wishes, moved apart as far as they overlap, and centred on them."""
        at: list[float] = []
        for i, k in enumerate(row):
            least = at[-1] + (self.widths[row[i - 1]] + self.widths[k]) / 2 + GAP if at else wish[k]
            at.append(max(wish[k], least))
        shift = sum(wish[k] - value for k, value in zip(row, at, strict=True)) / len(row)
        for k, value in zip(row, at, strict=True):
            x[k] = value + shift


def _mean(neighbours: Sequence[int], place: Mapping[int, float] | Sequence[float], otherwise: float) -> float:
    if not neighbours:
        return otherwise
    return sum(place[k] for k in neighbours) / len(neighbours)
