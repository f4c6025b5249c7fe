"""Sessions for the two sides of a rewrite that is run alone, on the provider that is asked for.

A provider that compiles subgraphs may leave a piece of one or two nodes to the CPU that it would take in a
model (OpenVINO with a LayerNormalization that reads a graph input). So a node is put before each input:

    piece   x -> LayerNormalization -> y          run   x -> Identity -> LayerNormalization -> y
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

from normfuse.parity.guarded import Guarded
from normfuse.parity.light import LightModel
from normfuse.parity.model import serialize
from normfuse.parity.providers import CPU, provider_name
from normfuse.parity.sessions import NO_KERNEL, Reference, Runner, RuntimeRefusalError, Session
from normfuse.parity.settings import Feed, Settings, on_cpu

FED = "/fed"


def open_pair(old: LightModel, new: LightModel, settings: Settings) -> tuple[Runner, Runner]:
    """Both sides, as sessions.

    What a provider refuses of the original it may refuse of the replacement: then both are run on the CPU,
    and what has no kernel there by the reference evaluator. Raises RuntimeRefusalError where the replacement
    alone is refused.
    """
    try:
        before = _open(old, settings)
    except RuntimeRefusalError:
        if provider_name(settings.provider) != CPU:
            return open_pair(old, new, on_cpu(settings))
        return Reference(old.whole()), _open_or_evaluate(new, settings)
    try:
        return before, _open(new, settings)
    except RuntimeRefusalError as error:
        if (settings.standard or settings.elsewhere) and error.kind == NO_KERNEL:
            return before, Reference(new.whole())
        raise


def _open_or_evaluate(piece: LightModel, settings: Settings) -> Runner:
    """A session, or the reference evaluator where a kernel is missing, as it was for the original."""
    try:
        return _open(piece, settings)
    except RuntimeRefusalError as error:
        if error.kind != NO_KERNEL:
            raise
        return Reference(piece.whole())


def _open(piece: LightModel, settings: Settings) -> Runner:
    # One thread: a pool for each of many small sessions costs more than it gains.
    if provider_name(settings.provider) == CPU:
        return Session(serialize(piece.proto), settings, weights=piece.weights, threads=1)
    padded = _behind_identities(piece.proto)
    fed = _Fed(Session(serialize(padded), settings, weights=piece.weights, threads=1))
    try:
        return Guarded(fed, _open(piece, on_cpu(settings)))
    except RuntimeRefusalError:
        return fed  # the CPU has no kernel for it


def _behind_identities(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that has a node between each input and what reads it."""
    padded = onnx.ModelProto()
    padded.CopyFrom(proto)
    nodes = list(padded.graph.node)
    del padded.graph.node[:]
    for value in padded.graph.input:
        padded.graph.node.append(helper.make_node("Identity", [value.name + FED], [value.name]))
        value.name += FED
    padded.graph.node.extend(nodes)
    return padded


class _Fed:
    """A session whose inputs go by longer names."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.outputs = session.outputs

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Run once."""
        return self._session.run({name + FED: value for name, value in feed.items()}, names)
