"""The book of what was folded: one record for each place of the graph, however often it was folded over.

A site is known by the name of its output, and begins at the name of its input; both have to be names of the
source that still hold what they held. A fold changes what stands between: those values are *covered* by the
site, and a later fold that ends at one of them, or starts there, is part of the same site.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import onnx_ir as ir

from normfuse.folding.plan import FoldRecord, Kind


class Ledger:
    """The records of one run."""

    def __init__(self) -> None:
        self._records: dict[str, FoldRecord] = {}
        self._covered: dict[ir.Value, str] = {}
        self._within: dict[str, str] = {}
        self._moved: dict[str, str] = {}

    def output(self, value: ir.Value) -> str:
        """The name of the site that ends at `value`, or around it."""
        name = self._covered.get(value, value.name or "")
        while name in self._within:
            name = self._within[name]
        return name

    def input(self, value: ir.Value) -> str:
        """The name at which a site that reads `value` begins."""
        around = self._records.get(self.output(value)) if value in self._covered else None
        return (value.name or "") if around is None else around.input

    def enter(
        self, record: FoldRecord, gone: Iterable[str], changed: Sequence[ir.Value], moves_input: bool
    ) -> None:
        """Enter a fold, together with the earlier ones that it has gone over again.

        gone: names that the fold has taken out of the graph, or from the values that had them.
        changed: values that are still there and hold other numbers.
        moves_input: whether who read one of the gone values now reads the input of this fold.
        """
        names = [name for name in dict.fromkeys(gone) if name != record.output]
        for name in (*names, record.output):
            earlier = self._records.pop(name, None)
            record = record if earlier is None else _joined(record, earlier)
            if name != record.output and earlier is not None:
                self._within[name] = record.output
        if moves_input:
            self._moved.update((name, record.input) for name in names)
        self._covered.update((value, record.output) for value in changed)
        self._records[record.output] = record

    def records(self) -> list[FoldRecord]:
        """All records; one whose input another fold has moved starts where that one does."""
        return [_described(replace(r, input=self._start(r.input))) for r in self._records.values()]

    def _start(self, name: str) -> str:
        while name in self._moved:
            name = self._moved[name]
        return name


def _joined(record: FoldRecord, earlier: FoldRecord) -> FoldRecord:
    """Two folds of one site."""
    kind: Kind = "BatchNorm" if "BatchNorm" in (earlier.kind, record.kind) else "Affine"
    operators = dict.fromkeys(f"{earlier.operator} {record.operator}".split())
    return replace(
        record,
        kind=kind,
        spelling=f"{earlier.spelling}, {record.spelling}",
        operator=" ".join(operators),
        nodes_replaced=record.nodes_replaced + earlier.nodes_replaced,
        rounding=max(record.rounding, earlier.rounding),
        added_bytes=record.added_bytes + earlier.added_bytes,
    )


def _described(record: FoldRecord) -> FoldRecord:
    detail = f"worst rounding {record.rounding:.1e} of a channel's largest weight"
    if record.added_bytes > 0:
        detail += f", {record.added_bytes} bytes of constants added"
    return record if record.detail else replace(record, detail=detail)
