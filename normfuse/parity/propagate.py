"""How far the certified error of each rewrite carries to the outputs of the model.

    original    ... -> [site] -> y -> ...
    moved       ... -> [site] -> y.before -> Add(moves) -> y -> ...      moves = ±bound · |y|, at random

A rewrite may be off by what its certificate allows on these inputs (judge.py). Where a model is sensitive to
that, as where statistics are taken over a single pixel, its noise floor alone would call a certified rewrite
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.random import Generator
from onnx import TypeProto, helper

from normfuse.parity.compare import Distance, distance, magnitude
from normfuse.parity.dtypes import is_float
from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.sessions import RuntimeRefusalError, open_variant, open_with_outputs
from normfuse.parity.settings import Array, Settings

SUFFIX = ".moves"


def site_noise(
    model: Model, bounds: Mapping[str, float], trial: Trial, settings: Settings
) -> dict[str, Distance]:
    """The distance of each output between the original and itself with every site moved by its bound."""
    names = [n for n, bound in bounds.items() if n in model.main.position and 0 < bound < 1]
    rng = np.random.default_rng(settings.seed + 3)
    try:
        values = open_with_outputs(model, settings, names).run(trial.feed, names)
        moves = {
            n + SUFFIX: _moves(np.asarray(values[n]), bounds[n], rng) for n in names if is_float(values[n])
        }
        session = open_variant(model, with_moves(model, moves), settings)
        moved = session.run({**trial.feed, **moves}, list(trial.baseline))
    except RuntimeRefusalError:
        return {}  # a value that cannot be recorded or added to: nothing is granted
    return {k: distance(np.asarray(v), np.asarray(moved[k])) for k, v in trial.baseline.items()}


def _moves(value: Array, bound: float, rng: Generator) -> Array:
    signs = rng.integers(0, 2, value.shape) * 2 - 1
    finite = np.isfinite(value.astype(np.float64))
    return np.asarray(np.where(finite, signs * bound * magnitude(value), 0).astype(value.dtype))


def with_moves(model: Model, moves: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with a further input for each site, added to the site's result."""
    proto = model.light.copy()
    nodes: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        nodes.append(copy)
        for i, name in enumerate(node.output):
            if name + SUFFIX in moves:
                copy.output[i] = f"{name}.before"
                nodes.append(helper.make_node("Add", [f"{name}.before", name + SUFFIX], [name]))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    for name, value in moves.items():
        kind = TypeProto.Tensor(elem_type=helper.np_dtype_to_tensor_dtype(value.dtype))
        proto.graph.input.append(helper.make_value_info(name, TypeProto(tensor_type=kind)))
    return proto
