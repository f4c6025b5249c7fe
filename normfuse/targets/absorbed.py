"""What a norm that is already in the graph has taken in of its neighbours: plain data for the report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Absorbed:
    """One norm that reads or writes other values than before, all by name.

    norm: the output of the norm as it was. output: the one that there is now. inputs: what it reads now;
    empty: as before. anchor: the node that a user knows. kind, spelling: of a norm that was there already.
    operator, lowering: what it is now. detail: what was taken in.
    """

    norm: str
    output: str
    inputs: tuple[str, ...]
    anchor: str
    kind: str
    spelling: str
    operator: str
    lowering: str
    detail: str
