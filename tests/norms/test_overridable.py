"""An initializer that is a graph input as well is no constant: a caller may give it another value."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from small_models import assert_agree, f32, model, rewritten, vector
from spelled import BETA, GAMMA

OVERRIDES = {
    "e": f32(2.0),
    "g": -3 * vector(6),
    "b": vector(6, seed=9),
    "p": f32(3.0),
    "n": f32(4.0),
    "last": np.array([0]),
    "column": np.array([1, 6]),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_what_a_caller_overrides_is_heeded(name):
    """The result must follow another value of every initializer that is also an input."""
    constants = {
        "e": f32(1e-3),
        "g": GAMMA,
        "b": BETA,
        "p": f32(2.0),
        "n": f32(6.0),
        "last": np.array([-1]),
        "column": np.array([6, 1]),
    }
    proto = model(
        "m = ReduceMean(x, last) d = Sub(x, m) s = Pow(d, p) t = ReduceSum<keepdims=0>(s, last) "
        "u = Reshape(t, column) v = Div(u, n) ve = Add(v, e) r = Sqrt(ve) i = Div(d, r) k = Mul(i, g) "
        "y = Add(k, b)",
        constants,
        opset=18,
        x="float[6,6]",
        overridable=[name],
    )
    result = rewritten(proto).model
    assert_agree(proto, result)
    changed = []
    for stored in (proto, result):
        changed.append(onnx.ModelProto.FromString(stored.SerializeToString()))
        (tensor,) = (t for t in changed[-1].graph.initializer if t.name == name)
        tensor.CopyFrom(onnx.numpy_helper.from_array(OVERRIDES[name], name))
    assert_agree(*changed)
