"""Random spellings by the hundred in one model: rewritten once, run three times, held against float64.

    tally(seeds)   draws a graph for each seed, a true norm for every other one, and counts

Graphs lie side by side, so that the cost of a session and of raising the opset is shared among them. What a
graph computes without any rounding to its own type is found by running the same graph in float64.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import onnx
import onnx.compose
from onnx import TensorProto, numpy_helper
from small_models import ALL, OFF, Array, feeds, rewritten, session
from spelling import FLAWS, Pick, Spelled, spell

BATCH = 40
STATISTICS = ("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2")
OPSETS = (11, 13, 17, 18, 21, 23)
_HALVES = (TensorProto.FLOAT, TensorProto.FLOAT16)
# How far a result may be from the truth, beside what the original is: roundings of the type, relative.
ROUNDINGS = {"float32": 2e-6, "float16": 4e-3, "float64": 1e-12}


@dataclass
class Tally:
    """How many graphs, how many of them true norms, how many of these fused, and what disagreed.

    slower: true norms that were recognised, and left because the target has nothing faster for them.
    """

    graphs: int = 0
    norms: int = 0
    fused: int = 0
    slower: int = 0
    missed: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        share = 100 * (self.fused + self.slower) / max(self.norms, 1)
        return (
            f"{self.graphs:,} graphs, {len(self.disagreements)} that compute something else; "
            f"of {self.norms:,} true norms {self.fused:,} fused, {self.slower:,} recognised and left "
            f"because nothing is faster, {len(self.missed):,} missed ({share:.1f} % recognised)"
        )


def drawn(pick: Pick, opset: int) -> Spelled:
    """A graph of an opset: one in two is a true norm."""
    return spell(pick, pick((*("",) * len(FLAWS), *FLAWS)), opset)


def tally(seeds: Iterable[int], target: str = "ort-cpu") -> Tally:
    """Draw a graph for each seed, and count."""
    total, pending = Tally(), iter(seeds)
    while batch := list(islice(pending, BATCH)):
        opset = OPSETS[batch[0] // BATCH % len(OPSETS)]
        count(total, {f"{seed}": drawn(random.Random(seed).choice, opset) for seed in batch}, target)
    return total


def count(total: Tally, graphs: dict[str, Spelled], target: str) -> None:
    """Rewrite graphs side by side, and add what came of them."""
    protos = {name: spelled.model() for name, spelled in graphs.items()}
    sound = {name: proto for name, proto in protos.items() if not graphs[name].flaw or runs(proto)}
    if target == "onnx":  # InstanceNormalization in float64 is standard, and onnxruntime has no kernel for it
        sound = {
            name: proto for name, proto in sound.items() if graphs[name].dtype != onnx.TensorProto.DOUBLE
        }
    if not sound:
        return
    whole = together(sound)
    result = rewritten(whole, target)
    outputs = [value.name for value in whole.graph.output]
    names = [name.split("_", 1)[0] for name in outputs]
    changed = {s.output.split("_", 1)[0] for s in result.sites if s.status != "left"}
    wrong = {names[k] for k, level in differing(whole, result.model) if level == OFF or names[k] in changed}
    total.graphs += len(sound)
    total.disagreements += [f"{name}: {graphs[name].kind} {graphs[name].flaw}" for name in sorted(wrong)]
    left = {n.name.split("_", 1)[0] for n in result.model.graph.node if n.op_type in STATISTICS}
    for name in sound:
        if not graphs[name].flaw:
            sites = [s for s in result.sites if s.output.startswith(f"{name}_")]
            slower = bool(sites) and all(s.reason == "no-gain" for s in sites)
            fused = any(s.status == "fused" for s in sites) and name not in left
            total.norms, total.fused = total.norms + 1, total.fused + fused
            total.slower += slower
            if not fused and not slower:
                total.missed.append(f"{name}: {graphs[name].kind} {[s.reason for s in sites]}")


def runs(proto: onnx.ModelProto) -> bool:
    """Whether onnxruntime runs a graph at all; it has no common base class of its errors."""
    try:
        session(proto).run(None, next(feeds(proto)))
    except Exception:
        return False
    return True


def together(protos: dict[str, onnx.ModelProto]) -> onnx.ModelProto:
    """Models side by side in one, each under its name."""
    renamed = [onnx.compose.add_prefix(proto, f"{name}_") for name, proto in protos.items()]
    first = renamed[0]
    for other in renamed[1:]:
        for part in ("node", "input", "output", "initializer"):
            getattr(first.graph, part).extend(getattr(other.graph, part))
    for k, node in enumerate(first.graph.node):
        node.name = f"{node.output[0].split('_', 1)[0]}_{k}"
    return first


def differing(before: onnx.ModelProto, after: onnx.ModelProto) -> Iterator[tuple[int, Any]]:
    """The outputs in which a rewritten model is further from the truth than the original, and the level.

    At the level of users onnxruntime itself gets some graphs wrong that were left as they are.
    """
    exact = session(in_float64(before))
    original, results = session(before), {level: session(after, level) for level in (OFF, ALL)}
    for feed in feeds(before):
        truth = exact.run(None, {name: widened(array) for name, array in feed.items()})
        expected = original.run(None, feed)
        for level, result in results.items():
            found = result.run(None, feed)
            for k, arrays in enumerate(zip(truth, expected, found, strict=True)):
                if not close(*arrays):
                    yield k, level


def close(truth: Array, before: Array, after: Array) -> bool:
    """Whether a result is as near to the truth as the original, but for some roundings of its type."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    old, new = before.astype(np.float64), after.astype(np.float64)
    finite = np.isfinite(old)
    if not np.array_equal(finite, np.isfinite(new)) or not np.array_equal(
        old[~finite], new[~finite], equal_nan=True
    ):
        return False
    with np.errstate(invalid="ignore"):
        spread = np.max(np.abs(old - truth)[finite], initial=0.0)
        size = np.abs(truth[finite]) + np.max(np.abs(truth[finite]), initial=0.0)
        error = np.abs(new - truth)[finite]
    return bool(np.all(error <= 8 * spread + 8 * ROUNDINGS[before.dtype.name] * size))


def widened(array: Array) -> Array:
    """The same numbers in float64, where they are none already."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def in_float64(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with every float32 and float16 in it as float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    for tensor in wide.graph.initializer:
        _widen(tensor)
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type in _HALVES:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            elif node.op_type == "Cast" and attribute.i in _HALVES:
                attribute.i = TensorProto.DOUBLE
    return wide


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _HALVES:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        )
