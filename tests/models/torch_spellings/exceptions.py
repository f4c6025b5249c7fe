"""The exports that do not end as asked, named one by one with what keeps them; everything else does.

Keys are a module and its ways, separated by spaces, as `python -m torch_spellings` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

REFUSED: dict[tuple[str, str], str] = {
    # the affine goes through a Gather whose indices are computed from the batch
    ("gn", "fp32-dyd~18"): "statistics-of-another-tensor",
    ("gn_1d", "fp32-dyd~18"): "statistics-of-another-tensor",
    ("gn_silu", "fp32-dyd~18"): "statistics-of-another-tensor",
    ("gn_sigmul", "fp32-dyd~18"): "statistics-of-another-tensor",
    ("gn_ada", "fp32-dyd~18"): "statistics-of-another-tensor",
    # torch writes a bias of shape (8, 2) here, which no runtime accepts
    ("conv3d_bn", "fp32-dyraw18"): "not-per-channel",
}
"""(module, ways) -> the reason code."""

NOT_EXPORTED: dict[tuple[str, str], str] = {
    ("bn_track_false", "fp32-ts~16 fp32-ts~17"): "batch_size and channel_size must be non-None",
}
"""(module, ways) -> what torch's exporter says."""


def of(module: str, table: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """way -> reason, for one module."""
    return {way: reason for name, way, reason in each(table) if name == module}


def each(table: Mapping[tuple[str, str], str]) -> Iterator[tuple[str, str, str]]:
    """(module, way, reason), one at a time."""
    for (module, ways), reason in table.items():
        yield from ((module, way, reason) for way in ways.split())
