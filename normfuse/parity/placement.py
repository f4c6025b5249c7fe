"""Where nodes really ran: a provider may leave some to the CPU without saying so. Read from a profile."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from normfuse.parity.model import Model
from normfuse.parity.sessions import RuntimeRefusalError, open_model, provider_name
from normfuse.parity.settings import Feed, Settings

FUSED = (
    "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm",
    "LpNormalization", "BatchNormalization", "LRN",
)  # fmt: skip


def placement(model: Model, feed: Feed, settings: Settings) -> dict[tuple[str, str], int]:
    """How many nodes of each operator type ran on each provider, in one run."""
    with tempfile.TemporaryDirectory() as folder:
        session = open_model(model, settings, "deployed", profile=str(Path(folder) / "profile"))
        session.run(feed)
        events = json.loads(Path(session.end_profile()).read_text())
    nodes = {
        e["name"]: e["args"] for e in events if e.get("cat") == "Node" and "provider" in e.get("args", {})
    }
    return dict(Counter((args.get("op_name", ""), args["provider"]) for args in nodes.values()))


def notes(model: Model, feed: Feed, settings: Settings) -> list[str]:
    """A line on normalizations that did not run where they were asked to."""
    name = provider_name(settings.provider)
    if name == "CPUExecutionProvider":
        return []
    try:
        found = placement(model, feed, settings)
    except RuntimeRefusalError:
        return []  # reported as a fault of the deployed level
    return _sentences(found, name, FUSED)


def _sentences(found: dict[tuple[str, str], int], name: str, kinds: Sequence[str]) -> list[str]:
    there = sum(n for (kind, where), n in found.items() if kind in kinds and where == name)
    elsewhere = Counter(
        {f"{kind} on {where}": n for (kind, where), n in found.items() if kind in kinds and where != name}
    )
    sentences = [f"{there} normalizations ran on {name}"] if there else []
    if elsewhere:
        listed = ", ".join(f"{n} {what}" for what, n in elsewhere.items())
        sentences.append(f"{name} left some normalizations to another provider: {listed}")
    return sentences
