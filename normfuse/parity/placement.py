"""Where nodes really ran: a provider may leave some to the CPU without saying so. Read from a profile.

A profile names each node that ran, and its provider. A provider that compiles subgraphs (OpenVINO, TensorRT,
CoreML) runs a whole subgraph as one node; which nodes those are, the session says (from onnxruntime 1.24 on).
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from normfuse.parity.model import Model, every_node, serialize
from normfuse.parity.providers import CPU, provider_name
from normfuse.parity.sessions import RuntimeRefusalError, Session
from normfuse.parity.settings import Feed, Settings
from normfuse.parity.verdict import Placement

FUSED = (
    "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm",
    "SkipGroupNorm", "LpNormalization", "BatchNormalization", "LRN", "MeanVarianceNormalization",
)  # fmt: skip
# Makes a session remember which nodes each provider took.
ASSIGNMENT = "session.record_ep_graph_assignment_info"
MOST_NAMES = 3


@dataclass(frozen=True)
class Places:
    """Where the nodes of one run were computed: operator type and provider by the node's name.

    compiled: a provider ran subgraphs, and the runtime does not say which nodes they hold.
    """

    nodes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    compiled: bool = False

    def counts(self) -> Counter[tuple[str, str]]:
        """How many nodes of each operator type ran on each provider."""
        return Counter(self.nodes.values())

    def runs_on_cpu(self, nodes: tuple[onnx.NodeProto, ...]) -> bool:
        """Whether the CPU runs a fused node among these."""
        return any(
            node.op_type in FUSED and self.nodes.get(name_of(node), ("", ""))[1] == CPU for node in nodes
        )


def name_of(node: onnx.NodeProto) -> str:
    """The name of a node, or of the first value that it computes where it has none."""
    return str(node.name or next((name for name in node.output if name), node.op_type))


def places_of(model: Model, feed: Feed, settings: Settings) -> Places:
    """Where the nodes of a model run at the level that users deploy with; on the CPU nothing is asked."""
    if provider_name(settings.provider) == CPU:
        return Places()
    try:
        return _profiled(model, feed, settings)
    except RuntimeRefusalError:
        return Places()  # reported as a fault of the deployed level


def _profiled(model: Model, feed: Feed, settings: Settings) -> Places:
    proto = model.light.copy()
    for node in every_node(proto.graph):
        node.name = name_of(node)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            serialize(proto),
            settings,
            "deployed",
            folder=model.path.parent,
            weights=model.light.weights,
            profile=str(Path(folder) / "profile"),
            entries={ASSIGNMENT: "1"},
        )
        session.run(feed)
        events = json.loads(Path(session.end_profile()).read_text(encoding="utf-8"))
    return _read(events, _assigned(session.session))


def placement(model: Model, places: Places, settings: Settings) -> Placement:
    """Of the fused nodes that ran, how many ran where they were asked to; on the CPU all do."""
    name = provider_name(settings.provider)
    if name == CPU:
        count = sum(node.op_type in FUSED for node in every_node(model.proto.graph))
        return Placement(name, count, count)
    fused = {node: at for node, at in places.nodes.items() if at[0] in FUSED}
    elsewhere = {node: at for node, at in fused.items() if at[1] != name}
    listed = tuple(f"{node} ({kind}) on {where}" for node, (kind, where) in elsewhere.items())
    return Placement(name, len(fused), len(fused) - len(elsewhere), listed)


def sentence(found: Placement, places: Places) -> str:
    """Where the fused nodes ran, in words; "" for the CPU, where there is nothing to tell."""
    if found.provider == CPU:
        return ""
    if places.compiled:
        return f"{found.provider} ran compiled subgraphs; this onnxruntime does not say what is in them"
    if not found.fused:
        return ""
    text = f"{found.there} of {found.fused} fused nodes ran on {found.provider}"
    if not found.elsewhere:
        return text
    more = len(found.elsewhere) - MOST_NAMES
    listed = ", ".join(found.elsewhere[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"{text}; it left to another provider: {listed}"


def _read(events: list[dict[str, Any]], assigned: Mapping[str, tuple[str, str]] | None) -> Places:
    """From a profile's events; assigned: all nodes as the providers took them, where that is known."""
    ran = {
        e["name"].removesuffix("_kernel_time"): (e["args"].get("op_name", ""), e["args"]["provider"])
        for e in events
        if e.get("cat") == "Node" and "provider" in e.get("args", {})
    }
    if assigned is None:
        # A node that stands for a subgraph is named after its provider.
        return Places(ran, any(name.startswith(where) for name, (_, where) in ran.items()))
    compiling = {where for name, (_, where) in ran.items() if name.startswith(where)}
    inside = {name: at for name, at in assigned.items() if name not in ran and at[1] in compiling}
    return Places({**{n: at for n, at in ran.items() if not n.startswith(at[1])}, **inside})


def _assigned(session: Any) -> dict[str, tuple[str, str]] | None:
    try:
        subgraphs = session.get_provider_graph_assignment_info()
        return {
            node.name: (node.op_type, subgraph.ep_name)
            for subgraph in subgraphs
            for node in subgraph.get_nodes()
        }
    except AttributeError:
        return None  # an older onnxruntime
