"""Measuring and tuning on a GPU."""

from __future__ import annotations

import pytest
from small_models import model, vector

import normfuse
from normfuse.options import Options

pytestmark = pytest.mark.cuda

CUDA = Options(providers=("cuda",))
NORM = model("y = LayerNormalization(x, g)", {"g": vector(64)}, x="float[S,64]")


def test_models_are_measured_on_the_device() -> None:
    (found,) = normfuse.benchmark([NORM, NORM], CUDA, seconds=0.2, profile=True)
    assert found.provider == "cuda"
    assert found.provider_options == {"use_tf32": "0"}
    assert "LayerNormalization" in {each.operator for each in found.models[0].operators}


def test_half_precision_is_measured_too() -> None:
    half = model("y = Add(x, x)", x="float16[4,64]")
    (found,) = normfuse.benchmark([half], CUDA, seconds=0.2)
    assert found.models[0].median > 0


def test_a_model_is_tuned_on_the_device() -> None:
    body = "s = Add(x, r) y = LayerNormalization(s, g)"
    skip = model(body, {"g": vector(64)}, x="float[2,8,64]", r="float[2,8,64]")
    report = normfuse.optimize(skip, options=Options(providers=("cuda",), tune=True)).report
    assert report.tuning is not None
    assert report.tuning.provider == "cuda"
