"""A lowering that fails its check: the next that the target has is taken, if there is one and it holds."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from broken_rewrites import zero
from faults import of_nodes, of_norm, operand
from parity_models import model

import normfuse
from normfuse.parity.verdict import SiteVerdict
from normfuse.pipeline.given import source_of
from normfuse.pipeline.lowerings import Retries
from normfuse.pipeline.rewritten import Rewritten
from normfuse.pipeline.run import Run
from normfuse.report.record import Site

BODY = (
    "h = Relu(x) m = ReduceMean<axes=[1]>(h) d = Sub(h, m) s = Mul(d, d) v = ReduceMean<axes=[1]>(s) "
    "e = Constant<value_float=1e-5>() ve = Add(v, e) r = Sqrt(ve) n = Div(d, r) "
    "k = Mul(n, g) y = Add(k, b)"
)


@pytest.fixture
def channels_first() -> onnx.ModelProto:
    scales = {name: np.linspace(0.5, 2, 8, dtype=np.float32).reshape(8, 1, 1) for name in ("g", "b")}
    return model("float[N, 8, H, W] x", "float[N, 8, H, W] y", BODY, scales)


def optimized(source: onnx.ModelProto, **options: object) -> Site:
    (site,) = normfuse.optimize(source, options=normfuse.Options(**options)).report.sites  # type: ignore[arg-type]
    return site


BROKEN = of_nodes(operand("BatchNormalization", 2, zero))


def test_the_next_lowering_is_taken_and_the_report_says_why(
    channels_first: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert optimized(channels_first).lowering == "matmul-statistics"
    BROKEN(monkeypatch, "y")
    site = optimized(channels_first)
    assert (site.status, site.lowering) == ("fused", "layer-norm")
    assert site.detail.startswith("matmul-statistics failed: ")
    assert site.parity is not None
    assert site.parity.result == "equal"


def test_where_every_lowering_fails_the_site_stays_as_spelled(
    channels_first: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_norm(epsilon=lambda norm: norm.epsilon * 10)(monkeypatch, "y")
    assert optimized(channels_first).status == "rolled-back"


def test_a_lowering_that_was_asked_for_is_not_replaced() -> None:
    site = Site("LayerNorm", "fused", "y", "y", lowering="a")
    done = Rewritten(ir.Model(ir.Graph([], [], nodes=[]), ir_version=8), [site])
    done.choices["y"] = ("a", "b", "as-spelled")
    guilty = {"y": SiteVerdict("failed")}
    assert Retries().add(done, guilty, {}) == {"y"}
    assert Retries().add(done, guilty, {"y": "a"}) == set()


def test_what_cannot_be_said_so_any_more_is_taken_back(channels_first: onnx.ModelProto) -> None:
    retries, taken_back = Retries({"y": "gone"}), {}
    run = Run(normfuse.Options(), lambda stage: None)
    done = run._rewritten(source_of(channels_first), taken_back, retries)
    assert [site.status for site in done.sites] == ["rolled-back"]
    assert set(taken_back) == {"y"}
