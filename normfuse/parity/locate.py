"""Where two models begin to differ: the first value that both have, in the order in which it is computed.

Each value is held against its own noise floor, like an output (whole.py). Values are fetched a few at a time,
so that memory stays bounded, and more at a time while they are small. What stands before the first difference
agrees; so what is to blame is the node that computes it, or what only one of the models has in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from normfuse.parity.baseline import Baseline, baseline_of
from normfuse.parity.floor import Floor
from normfuse.parity.model import Model, names_read
from normfuse.parity.placement import name_of
from normfuse.parity.providers import require
from normfuse.parity.room import within_memory
from normfuse.parity.seeds import pin
from normfuse.parity.sessions import RuntimeRefusalError, open_variant, open_with_outputs
from normfuse.parity.settings import Settings
from normfuse.parity.verdict import OutputFigures
from normfuse.parity.whole import compare_all

FIRST_BATCH = 16
# A batch that took less than this part of what may be held at a time is followed by one twice as long.
SMALL_PART = 8


@dataclass(frozen=True)
class Place:
    """The node that computes a value in one of the models."""

    node: str
    operator: str


@dataclass(frozen=True)
class Located:
    """Where two models begin to differ on one provider.

    compared: how many values were, up to the first that differs; shared: how many both models have.
    value: the first that differs, or None where none does, and its figures; before, after: what computes it.
    agreeing: the nearest values behind it that both models have, which agree.
    changes: how the two nodes differ.
    """

    provider: str
    compared: int
    shared: int
    value: str | None = None
    figures: OutputFigures | None = None
    before: Place | None = None
    after: Place | None = None
    agreeing: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


@within_memory()
def locate(a: Path, b: Path, settings: Settings) -> Located:
    """The first value, by name, that both models compute and that differs."""
    require([settings.provider])
    (before, _), (after, _) = pin(Model.load(a)), pin(Model.load(b))
    baseline = baseline_of(before, settings)
    constant = before.main.constant
    names = [n for n in before.main.position if n in after.main.position and n not in constant]
    done = 0
    for figures, count in _compared(baseline, after, names, settings):
        first = next((f for f in figures if f.conclusive and not f.agrees), None)
        if first is not None:
            done += names[done:].index(first.name) + 1
            return _located(before, after, first, Located(settings.provider, done, len(names)))
        done += count
    return Located(settings.provider, done, len(names))


def _compared(
    baseline: Baseline, after: Model, names: Sequence[str], settings: Settings
) -> Iterator[tuple[Sequence[OutputFigures], int]]:
    """Figures of the values in order, some at a time, and how many values that were."""
    start, length = 0, FIRST_BATCH
    while start < len(names):
        batch = list(names[start : start + length])
        figures, size = _figures(baseline, after, batch, settings)
        yield figures, len(batch)
        start += len(batch)
        length = length * 2 if size < settings.record_memory // SMALL_PART else length


def _figures(
    baseline: Baseline, after: Model, names: list[str], settings: Settings
) -> tuple[Sequence[OutputFigures], int]:
    """Figures of some values, and the bytes of one run; of a value that cannot be had there are none."""
    try:
        proto = baseline.model.light.copy()
        known = set(baseline.model.outputs)
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
        session = open_variant(baseline.model, proto, settings)
        trials = [replace(t, baseline=_arrays(session.run(t.feed, names))) for t in baseline.trials]
        other = open_with_outputs(after, settings, names)
        results = [_arrays(other.run(t.feed, names)) for t in trials]
    except RuntimeRefusalError:
        if len(names) == 1:
            return (), 0
        half = len(names) // 2
        (first, a), (second, b) = (
            _figures(baseline, after, part, settings) for part in (names[:half], names[half:])
        )
        return (*first, *second), a + b
    floor = Floor(baseline.model, session, settings, proto)
    size = sum(array.nbytes for array in trials[0].baseline.values())
    return compare_all(trials, results, floor, baseline.unstable), size


def _arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors among the values; a sequence shows in what is made of it."""
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _located(before: Model, after: Model, first: OutputFigures, so_far: Located) -> Located:
    old, new = (model.main.graph.node[model.main.position[first.name]] for model in (before, after))
    return replace(
        so_far,
        value=first.name,
        figures=first,
        before=Place(name_of(old), old.op_type),
        after=Place(name_of(new), new.op_type),
        agreeing=_computed_from(before, old, set(after.main.position) | set(after.inputs)),
        changes=tuple(_changes(before, after, old, new)),
    )


def _computed_from(model: Model, node: onnx.NodeProto, shared: set[str]) -> tuple[str, ...]:
    """The nearest values behind a node that the other model has too."""
    found: dict[str, None] = {}
    stack, seen = [node], set[str]()
    while stack:
        for name in sorted(names_read(stack.pop()) - seen - model.main.constant):
            seen.add(name)
            if name in shared:
                found[name] = None
            elif name in model.main.position:
                stack.append(model.main.graph.node[model.main.position[name]])
    return tuple(found)


def _changes(before: Model, after: Model, old: onnx.NodeProto, new: onnx.NodeProto) -> Iterator[str]:
    """How two nodes of one operator differ: attributes, constants, what they read."""
    if old.op_type != new.op_type or old.domain != new.domain:
        return
    was, now = ({a.name: helper.get_attribute_value(a) for a in node.attribute} for node in (old, new))
    for name in sorted(was.keys() | now.keys()):
        if not isinstance(was.get(name, now.get(name)), onnx.GraphProto) and was.get(name) != now.get(name):
            yield f"{name} {_short(was.get(name))} became {_short(now.get(name))}"
    if len(old.input) != len(new.input):
        yield f"{len(old.input)} inputs became {len(new.input)}"
    for i, (read, reads_now) in enumerate(zip(old.input, new.input, strict=False)):
        stored, stored_now = before.constant(read), after.constant(reads_now)
        if stored is None or stored_now is None:
            if read != reads_now:
                yield f"input {i} is {reads_now!r}, was {read!r}"
            continue
        a, b = before.array(stored), after.array(stored_now)
        if a.shape != b.shape or a.dtype != b.dtype:
            yield f"constant {reads_now!r} is {b.dtype} {list(b.shape)}, was {a.dtype} {list(a.shape)}"
        elif a.tobytes() != b.tobytes():
            gap = float(np.abs(b.astype(np.float64) - a.astype(np.float64)).max())
            yield f"constant {reads_now!r} differs from {read!r} by up to {gap:.3g}"


def _short(value: Any) -> str:
    """An attribute as it was written: a float32 with as many digits as it has."""
    if value is None:
        return "default"
    return str(np.float32(value)) if isinstance(value, float) else str(value)
