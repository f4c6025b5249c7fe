"""Words and figures for people: sizes, counts, times; and names that cannot play tricks on a terminal."""

from __future__ import annotations

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def printable(text: str) -> str:
    """The text with every control character, line break and terminal escape written out as its code."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def size(count: int) -> str:
    """4200000 -> "4.2 MB"."""
    if count < 1000:
        return f"{count} byte{'' if count == 1 else 's'}"
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def seconds(value: float) -> str:
    """0.0123 -> "12 ms", 71.3 -> "71 s"."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def figure(value: float) -> str:
    """An error as people compare them: 0, or two digits and a power of ten."""
    return "0" if value == 0 else f"{value:.1e}"


def plural(count: int, one: str, many: str = "") -> str:
    """2, "node" -> "2 nodes"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def few(names: list[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(printable(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def place(provider: str, threads: int) -> str:
    """Where something was measured: "cpu, 1 thread"; other providers have threads of their own."""
    counted = plural(threads, "thread") if threads else "as many threads as onnxruntime chooses"
    return (
        f"{provider}, {counted}"
        if provider == "cpu"
        else f"{provider} ({counted} for what it leaves to the CPU)"
    )


def duration(value: float) -> str:
    """A time that was measured, in three digits: 0.00123 -> "1.23 ms", 0.0000456 -> "45.6 µs"."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if value >= 0.9995 * factor:
            return f"{_three_digits(value / factor)} {unit}"
    return f"{_three_digits(value / 1e-6)} µs"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
