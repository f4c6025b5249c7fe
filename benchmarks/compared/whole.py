"""Whole networks: what normfuse, a person and other tools make of each, against the network as exported."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import normfuse
from compared import peers
from compared.networks import NETWORKS, Network
from compared.timing import Feed, Plan, Runner, measure
from normfuse.bench.ratios import Ratio

COUNTED = 0.05  # networks whose norms cost less than this share do not count for the share that is removed
OURS = ("original", "normfuse", "by hand", "without norms", "itself")

Models = dict[str, bytes]


@dataclass(frozen=True)
class Row:
    """One network: seconds of the original; original / form for every form that ran; why others did not."""

    network: Network
    seconds: float
    ratios: Mapping[str, Ratio]
    failed: Mapping[str, str]

    def saved(self, form: str) -> float:
        """Seconds by which a form is faster than the original."""
        return self.seconds * (1 - 1 / self.ratios[form].median)

    @property
    def cost(self) -> float:
        """The share of the original's time that its norms take."""
        return self.saved("without norms") / self.seconds


def rows(plan: Plan, pythons: Sequence[str]) -> tuple[list[Row], dict[str, str]]:
    """All networks, and the peers that were not to be found, each with the reason."""
    forms = {network.name: network.forms() for network in NETWORKS}
    for made in forms.values():
        made |= {"normfuse": rewritten(made["original"]), "itself": made["original"]}
    absent = {}
    for peer in peers.PEERS:
        with tempfile.TemporaryDirectory() as folder:
            originals = {name: made["original"] for name, made in forms.items()}
            outcome = peers.run(peer, pythons, originals, Path(folder))
        if outcome.missing:
            absent[peer.name] = outcome.missing
        for name, model in outcome.models.items():
            forms[name][peer.name] = model
    return [row(network, forms[network.name], plan) for network in NETWORKS], absent


def rewritten(model: bytes) -> bytes:
    """What normfuse makes of a model, verified, all its rewrites kept."""
    result = normfuse.optimize(model)
    taken_back = [site.output for site in result.report.sites if site.status == "rolled-back"]
    if taken_back:
        raise SystemExit(f"taken back by its parity check: {', '.join(taken_back)}")
    assert isinstance(result.model, bytes)
    return result.model


def row(network: Network, forms: Models, plan: Plan) -> Row:
    """Measure the forms of a network that load and compute the same."""
    x = np.random.default_rng(0).normal(size=network.shape).astype(np.float32)
    failed = {name: why for name in forms if (why := _fault(name, forms, {"x": x}))}
    if any(name in failed for name in OURS):
        raise SystemExit(f"{network.name}: {failed}")
    times = measure({name: m for name, m in forms.items() if name not in failed}, {"x": x}, plan)
    ratios = {name: times.ratio("original", name) for name in times.seconds}
    return Row(network, times.of("original"), ratios, failed)


def _fault(name: str, forms: Models, feed: Feed) -> str:
    """Why a form cannot be compared: it does not load, or it computes something else."""
    try:
        (found,) = Runner(forms[name], feed).values()
    except Exception as error:  # onnxruntime has a dozen kinds, and this is another tool's model
        return f"does not load: {str(error).splitlines()[0]}"
    (wanted,) = Runner(forms["original"], feed).values()
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    if name != "without norms" and np.abs(found - wanted).max() > 1e-3 * np.abs(wanted).max():
        return "computes something else"
    return ""


def mean(measured: Sequence[Row], form: str) -> float | None:
    """The geometric mean of a form over all networks, 1 where it failed; None where it has none."""
    ratios = [row.ratios[form].median if form in row.ratios else 1.0 for row in measured]
    return statistics.geometric_mean(ratios) if any(form in row.ratios for row in measured) else None


def removed(measured: Sequence[Row], form: str) -> tuple[float, int]:
    """The share of the norms' cost that a form removes, pooled; over how many networks."""
    counted = [row for row in measured if row.cost >= COUNTED]
    free = sum(row.saved("without norms") for row in counted)
    return sum(row.saved(form) for row in counted) / free, len(counted)
