"""What tuning chose, for people: one line in all, and one for each lowering that is not the default.

tuned         on cpu, 1 thread, batch=8 S=128: 2 of 14 sites, the whole 1.04 times as fast
              2 of as-spelled, 1.31 times as fast as layer-norm
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from normfuse.bench.choosing import Choice
from normfuse.bench.tuning import Tuning
from normfuse.report.printing import print_line
from normfuse.report.text import place, plural, printable


def print_tuning(found: Tuning, out: Console) -> None:
    """The choices, where they were measured, and what the whole model gains."""
    print_line(out, "tuned", "", f"on {_where(found)}: {_summary(found)}")
    for line in _changes(found.changes):
        print_line(out, "", "", line, body="dim")
    if found.note:
        print_line(out, "", "", printable(found.note), body="dim")
    vain = [choice for choice in found.choices if choice.note]
    if vain:
        first = f"{printable(vain[0].site)!r}: {printable(vain[0].note)}"
        print_line(out, "", "", f"not measured: {plural(len(vain), 'site')}, such as {first}", body="dim")
    if found.chosen:
        sizes = " ".join(f"{printable(name)}={found.sizes[name]}" for name in found.chosen)
        print_line(
            out, "", "", f"at sizes chosen here ({sizes}): give those you serve with --dim", body="yellow"
        )


def _where(found: Tuning) -> str:
    sizes = " ".join(f"{printable(name)}={size}" for name, size in found.sizes.items())
    return f"{place(found.provider, found.threads)}{f', {sizes}' if sizes else ''}"


def _summary(found: Tuning) -> str:
    if not found.choices:
        return "no site can be said in more than one way"
    if not found.changes:
        return f"{plural(len(found.choices), 'site')}, and the defaults stay"
    whole = f", the whole model {found.whole.median:.2f} times as fast" if found.whole else ""
    return f"{len(found.changes)} of {plural(len(found.choices), 'site')} changed{whole}"


def _changes(choices: Sequence[Choice]) -> list[str]:
    """One line for each pair of default and choice, with the least that it gains."""
    gains: dict[tuple[str, str], list[float]] = {}
    for choice in choices:
        taken = next(c for c in choice.candidates if c.lowering == choice.lowering)
        key = (choice.lowering, choice.candidates[0].lowering)
        gains.setdefault(key, []).append(taken.ratio.median if taken.ratio else 1.0)
    return [
        f"{len(found)} × {taken} in the place of {default}, {_range(found)} times as fast"
        for (taken, default), found in gains.items()
    ]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
