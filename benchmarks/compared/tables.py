"""The measurements as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compared import alone, peers, real, whole
from normfuse.bench.ratios import Ratio


def networks(rows: Sequence[whole.Row], absent: Mapping[str, str]) -> str:
    """Networks by form, then what the figures add up to."""
    others = [peer.name for peer in peers.PEERS if peer.name not in absent]
    forms = ["normfuse", "by hand", "without norms", *others, "itself"]
    head = ["network", "exported by", "original", *forms, "of the norms' cost removed"]
    body = [[*_network(row), *(_cell(row, form) for form in forms), _removed(row)] for row in rows]
    means = [whole.mean(rows, form) for form in forms]
    body.append(["**geometric mean**", "", "", *("" if m is None else f"**{m:.3f}**" for m in means), ""])
    lines = [_table(head, body), ""]
    for form in ("normfuse", "by hand"):
        share, count = whole.removed(rows, form)
        lines.append(
            f"- {form}: {share:.0%} of what the norms cost is removed, over the {count} networks where they "
            f"take {whole.COUNTED:.0%} or more of the time."
        )
    worst = min(rows, key=lambda row: row.ratios["normfuse"].median)
    lines.append(f"- The least gain: {worst.ratios['normfuse'].median:.2f} ({worst.network.name}).")
    lines += [f"- {name} was not measured: {why}." for name, why in absent.items()]
    failures = {(name, why) for row in rows for name, why in row.failed.items()}
    lines += [f"- {name}: {why}." for name, why in sorted(failures)]
    return "\n".join(lines)


def operators(rows: Sequence[alone.Alone]) -> str:
    """Families by size."""
    head = ["family", "sizes", "emitted", "spelled / fused", "fused / copy", "below 1.5, because"]
    body = [
        [
            row.family.name,
            ", ".join("×".join(map(str, size)) for size in row.family.sizes),
            f"`{row.operators}`",
            _list(row.faster),
            _list(row.taken),
            row.why,
        ]
        for row in rows
    ]
    return _table(head, body)


def models(rows: Sequence[real.Run], absent: Mapping[str, str]) -> str:
    """Real models."""
    head = ["model", "original", "rewrites", "original / result", "original / itself"]
    body = [
        [
            row.real.name,
            _milliseconds(row.seconds),
            str(row.done),
            _interval(row.faster),
            _interval(row.noise),
        ]
        for row in rows
    ]
    notes = [f"- {name} was not measured: {why}." for name, why in absent.items()]
    return "\n".join([_table(head, body), *(["", *notes] if notes else [])])


def _network(row: whole.Row) -> list[str]:
    network = row.network
    return [network.name, f"{network.exporter}, opset {network.opset}", _milliseconds(row.seconds)]


def _cell(row: whole.Row, form: str) -> str:
    if form not in row.ratios:
        return row.failed.get(form, "nothing written").partition(":")[0]
    ratio = row.ratios[form]
    return _interval(ratio) if form == "normfuse" else f"{ratio.median:.2f}"


def _removed(row: whole.Row) -> str:
    """The share, where the norms cost enough for one."""
    if row.cost < whole.COUNTED:
        return f"(they cost {max(row.cost, 0):.0%})"
    return f"{row.saved('normfuse') / row.saved('without norms'):.0%} of {row.cost:.0%}"


def _interval(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _list(ratios: Iterable[Ratio]) -> str:
    return ", ".join(f"{ratio.median:.2f}" for ratio in ratios)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
