"""How much memory a check may take: what the user says, else a part of what this machine has to spare.

What is available is asked of the system (on Linux the kernel's own estimate and the limit of the control
group, elsewhere the physical memory); three quarters of that are the limit.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from normfuse.errors import UsageError
from normfuse.parity.settings import Settings

SHARE = 0.75
# Where the system does not say.
FALLBACK = 4 << 30
# A control group without a limit says some huge number, or "max".
UNLIMITED = 1 << 60
UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str, option: str = "--max-memory") -> int:
    """Bytes of "2GB", "500 MB" (powers of 1000), "1.5GiB" (of 1024) or a number; UsageError otherwise."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if not found or (found[3] and not found[2]):
        raise UsageError(f"{option} {text!r} is no size", hint=f"for example {option} 2GB")
    bytes_ = int(float(found[1]) * (1024 if found[3] else 1000) ** UNITS[found[2]])
    if bytes_ <= 0:
        raise UsageError(f"{option} {text!r} is no memory at all", hint=f"for example {option} 2GB")
    return bytes_


def in_words(size: int) -> str:
    """24300000000 -> "24.3 GB"; in kB and MB below."""
    unit, factor = next((u, f) for u, f in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if size >= f or u == "kB")
    return f"{size / factor:,.1f} {unit}"


def limit_of(settings: Settings) -> int:
    """Bytes that a check may take."""
    return settings.max_memory if settings.max_memory is not None else default_limit()


@lru_cache(maxsize=1)
def default_limit() -> int:
    """A part of the memory that was available when it was first asked for."""
    return int(SHARE * available())


def available() -> int:
    """Bytes that this process can still take."""
    known = [size for size in (_of_the_system(), _of_the_group()) if size is not None]
    return min(known, default=FALLBACK)


def _of_the_system() -> int | None:
    text = _read("/proc/meminfo")
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    if found:
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None  # Windows


def _of_the_group() -> int | None:
    """What is left of the limit of a container."""
    pairs = (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    )
    for limit, usage in pairs:
        most, used = _read(limit).strip(), _read(usage).strip()
        if most.isdigit() and used.isdigit() and int(most) < UNLIMITED:
            return max(0, int(most) - int(used))
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
