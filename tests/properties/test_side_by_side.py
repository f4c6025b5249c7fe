"""Many norms in one model share much of their beginnings: each is judged as if it were the only one."""

from __future__ import annotations

import random

import onnx
import onnx.compose
import pytest
from small_models import rewritten
from spelling import FLAWS, Spelled, spell


def together(protos: list[onnx.ModelProto]) -> onnx.ModelProto:
    """Several models side by side in one."""
    first, *others = [onnx.compose.add_prefix(proto, f"p{k}_") for k, proto in enumerate(protos)]
    for other in others:
        for field in ("node", "input", "output", "initializer"):
            getattr(first.graph, field).extend(getattr(other.graph, field))
    return first


def spelled_with(seed: int) -> Spelled:
    """A norm, or nearly one."""
    pick = random.Random(seed).choice
    return spell(pick, pick(("", *FLAWS)))


@pytest.mark.parametrize("seed", range(12))
def test_norms_side_by_side_are_judged_as_each_alone(seed):
    drawn = [spelled_with(k) for k in range(40 * seed, 40 * seed + 40)]
    protos = [spelled.model() for spelled in drawn if spelled.opset == 17]
    alone = [len(rewritten(proto).fused) for proto in protos]
    fused = [site.output for site in rewritten(together(protos)).fused]
    assert [sum(name.startswith(f"p{k}_") for name in fused) for k in range(len(protos))] == alone
