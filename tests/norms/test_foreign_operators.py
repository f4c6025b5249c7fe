"""Operators of other domains may have the names of ONNX's own: they compute something else, and stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from small_models import f32, mentioned, model, operators, rewritten, vector

CONSTANTS: dict[str, Any] = {
    "g": vector(4),
    "b": vector(4, seed=1),
    "v": np.abs(vector(4)),
    "w": vector(4, 4),
    "one": np.array([1]),
    "pads": np.array([0, 0, 1, 0, 0, 0, 0, 1, 0, 0]),
    "alpha": f32(1e-2),
    "k": f32(2),
    "beta": f32(0.75),
}
IMAGE, WIDE, ROWS = "float[2,4,3,4]", "float[2,4,12,12]", "float[2,7,4]"
RESPONSE = (
    "s = Mul(x, x) u = Unsqueeze(s, one) p = Pad(u, pads) a = AveragePool<kernel_shape=[3,1,1]>(p) "
    "q = Squeeze(a, one) al = Mul(q, alpha) bi = Add(al, k) po = Pow(bi, beta) y = Div(x, po)"
)
TURNED = "t = Transpose<perm=[0,2,3,1]>(x) l = LayerNormalization(t, g, b) y = Transpose<perm=[0,3,1,2]>(l)"
FOLDED = (
    "m = MatMul(x, w) t = Transpose<perm=[0,2,1]>(m) n = BatchNormalization(t, g, b, b, v) "
    "y = Transpose<perm=[0,2,1]>(n)"
)
CENTRED = "m = ReduceMean<axes=[-1]>(q) y = Sub(x, m)"


def written(body: str, x: str) -> onnx.ModelProto:
    return model(body, mentioned(body, CONSTANTS), x=x, domains=', "mine": 1')


@pytest.mark.parametrize(
    ("body", "x"),
    [
        ("y = mine.GroupNormalization<num_groups=2>(x, g, b)", IMAGE),
        ("q = mine.Mul(x) " + CENTRED, IMAGE),
        ("q = mine.Div(x, x, x) " + CENTRED, IMAGE),
        ("q = mine.Cast(x) s = Mul(q, x) m = ReduceMean<axes=[-1]>(s) y = Sub(x, m)", IMAGE),
        ("m = ReduceMean<axes=[-1]>(x) q = mine.Pow(m) y = Sub(x, q)", "float[2,3,1]"),
        (RESPONSE.replace("Div(", "mine.Div("), IMAGE),
        (RESPONSE.replace("s = Mul(", "s = mine.Mul("), IMAGE),
        (RESPONSE.replace("Pow(", "mine.Pow("), IMAGE),
        (TURNED.replace("t = Transpose", "t = mine.Transpose"), WIDE),
        (TURNED.replace("y = Transpose", "y = mine.Transpose"), WIDE),
    ],
)
@pytest.mark.parametrize("target", ["ort-cpu", "onnx"])
def test_they_stay_with_all_around_them(body, x, target):
    proto = written(body, x)
    assert rewritten(proto, target).operators == operators(proto)


def test_a_fold_leaves_a_foreign_transpose():
    result = rewritten(written(FOLDED.replace("y = Transpose", "y = mine.Transpose"), ROWS))
    assert [node.op_type for node in result.model.graph.node if node.domain == "mine"] == ["Transpose"]
