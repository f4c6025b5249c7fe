"""Whole networks, as torch exports them: no norm is left that a person with a pencil could fold."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from folding_models import folded
from small_models import ALL, OFF, operators, run
from torch_networks import NETWORKS, exported

import normfuse

pytestmark = pytest.mark.slow
UNAVOIDABLE = {"linear-output-reused", "residual-between"}
"""Why a norm in front of an activation stays: what it reads is read again, or is a sum."""


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_norm_that_can_be_folded_is(name: str, exporter: str) -> None:
    model = exported(name, exporter)
    done = folded(model)
    assert done.operators["BatchNormalization"] == NETWORKS[name].stays
    assert len(done.reasons) == NETWORKS[name].stays
    assert set(done.reasons) <= UNAVOIDABLE
    assert len(done.model.graph.node) < len(model.graph.node)
    assert not folded(done.model).records


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_whole_pipeline_keeps_every_fold(name: str, exporter: str) -> None:
    model = exported(name, exporter)
    result = normfuse.optimize(model)
    done, stays = result.model, NETWORKS[name].stays
    assert isinstance(done, onnx.ModelProto)
    assert operators(done)["BatchNormalization"] == stays
    left = [site.reason for site in result.report.sites if site.status != "folded"]
    assert len(left) == stays
    assert set(left) <= UNAVOIDABLE
    for size in (1, 3):
        shape = (size, *NETWORKS[name].shape[1:])
        feed = {"x": np.random.default_rng(size).normal(size=shape).astype(np.float32)}
        (before,) = run(model, feed, OFF)
        for level in (OFF, ALL):
            (after,) = run(done, feed, level)
            assert np.abs(after - before).max() <= 1e-5 * np.abs(before).max()
