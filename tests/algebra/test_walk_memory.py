"""Walks that share a beginning: each is judged as if it were the only one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_models import f32, model, rewritten, vector

NORM = """
    m{k} = ReduceMean<axes = [-1]>({x})
    d{k} = Sub({x}, m{k})
    q{k} = Mul(d{k}, {square})
    v{k} = ReduceMean<axes = [-1]>(q{k})
    e{k} = Add(v{k}, {epsilon})
    s{k} = Sqrt(e{k})
    n{k} = Div({numerator}, s{k})
    g{k} = Mul(n{k}, {gamma})
"""


def blocks(*changes: dict[str, str]) -> onnx.ModelProto:
    """One norm behind another with a Relu between them, each with something else than the first."""
    body, x = "", "x"
    for k, change in enumerate(changes):
        usual = {"square": f"d{k}", "epsilon": "eps", "numerator": f"d{k}", "gamma": "gamma"}
        body += NORM.format(k=k, x=x, **{**usual, **change}) + f"r{k} = Relu(g{k})\n"
        x = f"r{k}"
    constants = {"eps": f32(1e-5), "other": f32(1e-3), "gamma": vector(8), "delta": vector(8, seed=1)}
    used = {name: value for name, value in constants.items() if name in body}
    return model(body + f"y = Identity({x})", used, x="float[B, 8]")


def scales(proto: onnx.ModelProto) -> list[list[float]]:
    """The scale of each fused norm."""
    known = {t.name: numpy_helper.to_array(t).tolist() for t in proto.graph.initializer}
    return [known[n.input[1]] for n in proto.graph.node if n.op_type == "LayerNormalization"]


def test_each_norm_keeps_its_own_scale():
    result = rewritten(blocks({}, {"gamma": "delta"}, {}))
    assert scales(result.model) == [v.tolist() for v in (vector(8), vector(8, seed=1), vector(8))]


def test_each_norm_keeps_its_own_epsilon():
    epsilons = [site.epsilon for site in rewritten(blocks({}, {"epsilon": "other"}, {})).fused]
    assert epsilons == [float(np.float32(e)) for e in (1e-5, 1e-3, 1e-5)]


@pytest.mark.parametrize("change", [{"numerator": "r0"}, {"square": "x"}, {"numerator": "x"}])
def test_a_look_alike_behind_a_norm_of_the_same_beginning_is_left(change):
    result = rewritten(blocks({}, change, {}))
    assert [site.anchor for site in result.fused] == [
        site.anchor for site in rewritten(blocks({}, {}, {})).fused if "1" not in site.output
    ]
