"""Whole networks, as torch exports them: no norm is left that a person with a pencil could fold."""

from __future__ import annotations

import numpy as np
import pytest
from folding_models import folded
from small_models import ALL, OFF, run
from torch_networks import NETWORKS, exported

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_norm_that_can_be_folded_is(name: str, exporter: str) -> None:
    model = exported(name, exporter)
    done = folded(model)
    assert done.operators["BatchNormalization"] == NETWORKS[name].stays
    assert done.reasons == ["linear-output-reused"] * NETWORKS[name].stays
    assert len(done.model.graph.node) < len(model.graph.node)
    for size in (1, 3):
        shape = (size, *NETWORKS[name].shape[1:])
        feed = {"x": np.random.default_rng(size).normal(size=shape).astype(np.float32)}
        (before,) = run(model, feed, OFF)
        for level in (OFF, ALL):
            (after,) = run(done.model, feed, level)
            assert np.abs(after - before).max() <= 1e-5 * np.abs(before).max()
    assert not folded(done.model).records
