"""A site as a small graph, before and after: plain data, with nothing in it by which two equal sites differ.

    x ──► ReduceMean ──► Sub ──► …          Box(reads=(0,), operator="ReduceMean", detail="axes -1")
    └────────────────────┘

Names and sizes stay out, so that the twelve equal LayerNorms of an encoder have one picture.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """An operator, or a value that the site reads (operator "").

    label: what is written in the box: the operator, or what the value is ("input", "other value").
    detail: attributes and constants that matter, such as "axes -1" or "1e-05".
    reads: the boxes whose values it reads, by their place in the sketch.
    """

    label: str
    operator: str = ""
    detail: str = ""
    reads: tuple[int, ...] = ()


Sketch = tuple[Box, ...]
"""Boxes in topological order; the last one computes the site's output."""


@dataclass(frozen=True)
class Picture:
    """The same site in the source and in the result; empty where it cannot be drawn."""

    before: Sketch = ()
    after: Sketch = ()
