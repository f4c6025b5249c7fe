"""Every module by name."""

from __future__ import annotations

from . import batch_norms, layer_norms, rms_norms, spatial_norms
from .spelling import Spelling

SPELLINGS: dict[str, Spelling] = {
    spelling.name: spelling
    for room in (layer_norms, rms_norms, spatial_norms, batch_norms)
    for spelling in room.SPELLINGS
}
