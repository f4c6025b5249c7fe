"""Norms of weights alone are computed once, and only where no caller can change the weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_models import assert_agree, model, operators, rewritten, vector

WEIGHT = "n = ReduceL2<axes=[1,2,3]>(v) u = Div(v, n) w = Mul(u, g) y = Conv(x, w)"
CONSTANTS = {"v": vector(4, 3, 1, 1), "g": vector(4, 1, 1, 1, seed=1)}
STANDARD = (
    "m = ReduceMean<axes=[1,2,3]>(v) d = Sub(v, m) s = Mul(d, d) t = ReduceMean<axes=[1,2,3]>(s) "
    "te = Add(t, e) r = Sqrt(te) "
    "w = Div(d, r) y = Conv(x, w)"
)
SPECTRAL = "a = MatMul(v2, p) b = Transpose(q) c = MatMul(b, a) w2 = Div(v2, c) y = MatMul(x, w2)"


def conv(
    text: str = WEIGHT, constants: dict[str, np.ndarray] | None = None, **options: object
) -> onnx.ModelProto:
    return model(text, constants or CONSTANTS, x="float[2,3,5,5]", outputs="float[2,4,5,5] y", **options)  # type: ignore[arg-type]


def test_a_weight_norm_becomes_a_weight():
    proto = conv()
    result = rewritten(proto)
    assert result.operators == {"Conv": 1}
    assert [(s.kind, s.status, s.output) for s in result.sites] == [("WeightNorm", "folded", "w")]
    assert_agree(proto, result.model)


def test_it_is_rounded_once():
    (stored,) = (numpy_helper.to_array(t) for t in rewritten(conv()).model.graph.initializer)
    v, g = (CONSTANTS[k].astype(np.float64) for k in "vg")
    exact = g * v / np.sqrt(np.sum(v * v, axis=(1, 2, 3), keepdims=True))
    np.testing.assert_array_equal(stored, exact.astype(np.float32))


def test_weight_standardization():
    proto = conv(STANDARD, {"v": CONSTANTS["v"], "e": np.array(1e-5, np.float32)})
    result = rewritten(proto)
    assert result.operators == {"Conv": 1}
    assert_agree(proto, result.model)


def test_spectral_norm():
    constants = {"v2": vector(6, 4), "p": vector(4, 1, seed=1), "q": vector(6, 1, seed=2)}
    proto = model(SPECTRAL, constants, x="float[2,6]", outputs="float[2,4] y")
    result = rewritten(proto)
    assert result.operators == {"MatMul": 1}
    assert_agree(proto, result.model)


@pytest.mark.parametrize("name", ["v", "g"])
def test_weights_that_callers_may_override_are_not_computed(name):
    proto = conv(overridable=[name])
    result = rewritten(proto)
    assert not [s for s in result.sites if s.kind == "WeightNorm" and s.output == "w"]
    assert_agree(proto, result.model)
    before, after = (onnx.ModelProto.FromString(m.SerializeToString()) for m in (proto, result.model))
    for changed in (before, after):
        (tensor,) = (t for t in changed.graph.initializer if t.name == name)
        tensor.CopyFrom(numpy_helper.from_array(-3 * numpy_helper.to_array(tensor), name))
    assert_agree(before, after)


def test_a_weight_with_another_reader_stays_as_well():
    proto = model(
        WEIGHT + " z = Conv(x, v)",
        CONSTANTS,
        x="float[2,3,5,5]",
        outputs="float[2,4,5,5] y, float[2,4,5,5] z",
    )
    result = rewritten(proto)
    assert result.operators == {"Conv": 2}
    assert_agree(proto, result.model)


def test_a_second_run_changes_nothing():
    once = rewritten(conv())
    assert not rewritten(once.model).sites


def test_it_is_skipped_by_name():
    proto = conv()
    result = rewritten(proto, skip=["w"])
    assert result.operators == operators(proto)
    assert result.reasons == {"skipped"}
