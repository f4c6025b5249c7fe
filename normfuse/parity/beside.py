"""Compares the rest of a model where some of its rewrites are closer to the truth than the original.

Such a site must differ from the baseline, and its certificate vouches for it. So its value is taken from the
result, and both models are compared up to it and from it on:

    original    a -> [site] -> y -> b -> out          compared: the values that the site reads
    cut         a -> [site]    y given -> b -> out    compared: out, with the result's own y given
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TypeProto, helper

from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.sessions import Fresh, RuntimeRefusalError, Session, open_variant, open_with_outputs
from normfuse.parity.settings import Array, Boundary, Settings
from normfuse.parity.whole import flat


class CannotCutError(Exception):
    """The improved sites cannot be set apart; the text says why."""


@dataclass(frozen=True, eq=False)
class CutModel:
    """The original with the results of some sites as inputs, and what they read as further outputs."""

    model: Model
    given: tuple[str, ...]
    compared: tuple[str, ...]
    proto: onnx.ModelProto

    def open(self, settings: Settings) -> Session | Fresh:
        """A session over it."""
        return open_variant(self.model, self.proto, settings)


def cut_at(original: Model, sites: Sequence[Boundary], sample: Mapping[str, Array]) -> CutModel:
    """Cut the original at the sites' outputs; `sample` holds a value of each, for its type."""
    given = tuple(dict.fromkeys(b.output for b in sites))
    missing = [name for name in given if name not in original.main.position]
    if missing:
        raise CannotCutError(f"{missing[0]!r} lies inside a body")
    proto = original.light.copy()
    for node in proto.graph.node:
        for i, name in enumerate(node.output):
            if name in given:
                node.output[i] = f"{name}.before"
    for name in given:
        kind = helper.np_dtype_to_tensor_dtype(sample[name].dtype)
        proto.graph.input.append(
            helper.make_value_info(name, TypeProto(tensor_type=TypeProto.Tensor(elem_type=kind)))
        )
    outputs = [o for o in proto.graph.output if o.name not in given]
    read = dict.fromkeys(name for b in sites for name in b.reads if name in original.main.position)
    extra = [name for name in read if name not in given and name not in {o.name for o in outputs}]
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra)
    return CutModel(original, given, (*(o.name for o in outputs), *extra), proto)


def _stored(rewritten: Model, site: Boundary) -> Array:
    """The value of a site that is a constant in the result."""
    tensor = rewritten.constant(site.constant)
    if tensor is None:
        raise CannotCutError(f"{site.constant!r} is no constant of the result")
    return rewritten.array(tensor)


def trials_beside(
    original: Model, rewritten: Model, sites: Sequence[Boundary], trials: Sequence[Trial], settings: Settings
) -> tuple[CutModel, Session | Fresh, list[Trial], list[dict[str, Array]]]:
    """The cut model, its session, its trials with the result's values given, and the result's outputs."""
    wanted = [name for b in sites for name in (b.output, *b.reads) if name in rewritten.main.position]
    try:
        session = open_with_outputs(rewritten, settings, wanted)
        fixed = {b.output: _stored(rewritten, b) for b in sites if b.constant}
        results = [{**fixed, **flat(session.run(trial.feed))} for trial in trials]
        cut = cut_at(original, sites, results[0])
        runner = cut.open(settings)
        given = [
            {**trial.feed, **{name: np.asarray(values[name]) for name in cut.given}}
            for trial, values in zip(trials, results, strict=True)
        ]
        found = [
            replace(trial, feed=feed, baseline=flat(runner.run(feed)))
            for trial, feed in zip(trials, given, strict=True)
        ]
    except RuntimeRefusalError as error:
        raise CannotCutError(str(error)) from error
    return cut, runner, found, results
