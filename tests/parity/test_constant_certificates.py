"""Values of weights alone that a rewrite computes at once: proved against the nodes that computed them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from parity_models import layer_norm, model

import normfuse
from normfuse.norms import weights
from normfuse.pipeline import rewrite
from normfuse.report import Report

RNG = np.random.default_rng(0)
WEIGHT_NORM = (
    "sq = Mul(v, v) total = ReduceSum<keepdims=1>(sq, axes) length = Sqrt(total) "
    "unit = Div(v, length) w = Mul(unit, wg) "
)
V = RNG.normal(size=(4, 3, 3, 3))
SCALES = np.array([1.2, 0.7, 1.9, 1e-6]).reshape(4, 1, 1, 1)


def weight_norm(behind: str = "c = Conv(x, w)", dtype: Any = np.float32) -> onnx.ModelProto:
    """The weights of a convolution, normalized for each of its channels; a LayerNorm behind it."""
    kind = {np.float32: "float", np.float16: "float16"}[dtype]
    body = f"{WEIGHT_NORM}{behind} t = Cast<to=1>(c) {layer_norm('t', 'y', 1e-5, 'g', 'b')}"
    constants = {"v": V.astype(dtype), "wg": SCALES.astype(dtype), "axes": np.array([1, 2, 3])}
    constants |= {"g": np.ones(6, np.float32), "b": np.zeros(6, np.float32)}
    affine = {name: np.linspace(0.5, 2, 4, dtype=np.float32) for name in ("s", "o", "m", "r")}
    constants |= affine if "BatchNormalization" in behind else {}
    return model(f"{kind}[N,3,8,8] x", "float[N,4,6,6] y", body, constants)


def statuses(report: Report) -> dict[str, str]:
    return {site.output: site.status for site in report.sites}


def plant(patch: pytest.MonkeyPatch, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Every constant that is computed at once is another one."""

    def find(*args: Any) -> Iterator[weights.WeightNorm]:
        for found in list(weights.find_weight_norms(*args)):
            yield dataclasses.replace(found, array=change(found.array).astype(found.array.dtype))

    patch.setattr(rewrite, "find_weight_norms", find)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_right_constant_has_a_certificate(dtype: Any) -> None:
    report = normfuse.optimize(weight_norm(dtype=dtype)).report
    assert statuses(report) == {"w": "folded", "y": "fused"}
    site = next(site for site in report.sites if site.output == "w")
    assert site.parity is not None
    assert site.parity.result == "equal"
    assert 0 < site.parity.error_after <= site.parity.bound


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a * 1.01, id="one in a hundred off"),
        pytest.param(lambda a: np.roll(a, 1, 0), id="another channel"),
        pytest.param(lambda a: a * np.array([1, 1, 1, 2]).reshape(4, 1, 1, 1), id="twice a small channel"),
        pytest.param(lambda a: a.astype(np.float16), id="rounded to half precision"),
        pytest.param(lambda a: a.swapaxes(2, 3).copy(), id="transposed"),
    ],
)
def test_a_wrong_constant_is_taken_back_and_no_other(
    change: Callable[[np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, change)
    result = normfuse.optimize(weight_norm())
    assert statuses(result.report) == {"w": "rolled-back", "y": "fused"}
    site = next(site for site in result.report.sites if site.output == "w")
    assert site.parity is not None
    assert site.parity.result == "failed"
    assert {"Sqrt", "Conv", "LayerNormalization"} <= {node.op_type for node in result.model.graph.node}


def test_a_constant_that_a_fold_takes_in_is_proved_with_the_fold() -> None:
    report = normfuse.optimize(weight_norm("d = Conv(x, w) c = BatchNormalization(d, s, o, m, r)")).report
    assert statuses(report) == {"w": "folded", "c": "folded", "y": "fused"}
    proved = {site.output: site.parity is not None for site in report.sites}
    assert proved == {"w": False, "c": True, "y": True}


def test_a_wrong_constant_that_a_fold_takes_in_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda a: a * 1.01)
    report = normfuse.optimize(weight_norm("d = Conv(x, w) c = BatchNormalization(d, s, o, m, r)")).report
    assert statuses(report)["w"] == "rolled-back"
    assert statuses(report)["y"] == "fused"
    assert report.parity is not None
    assert report.parity.result == "equal"


def test_a_model_that_is_not_run_proves_its_constants_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    options = normfuse.Options(max_memory=1000)
    report = normfuse.optimize(weight_norm(), options=options).report
    assert report.parity is not None
    assert report.parity.result == "certified-by-site"
    assert statuses(report) == {"w": "folded", "y": "fused"}
