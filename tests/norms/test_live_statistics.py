"""A LayerNorm whose mean or inverse deviation is read by others too has them as further outputs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from small_models import assert_agree, model, rewritten, vector
from spelled import fused_nodes

SHAPE, STATISTIC = "float[4,6]", "float[4,1]"
CORE = (
    "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) "
    "r = Sqrt(ve) "
)
PLAIN = CORE + "n = Div(d, r) k = Mul(n, g) y = Add(k, b) i = Reciprocal(r)"
TIMES = CORE + "i = Reciprocal(r) n = Mul(d, i) k = Mul(n, g) y = Add(k, b)"


def layer(body: str, outputs: str, dtype: type = np.float32, **options: object) -> onnx.ModelProto:
    constants = {
        "e": np.array(2.0**-10, dtype),
        "g": vector(6).astype(dtype),
        "b": vector(6, seed=1).astype(dtype),
    }
    name = {np.float32: "float", np.float16: "float16"}[dtype]
    options = {"x": f"{name}[4,6]", **options}
    return model(body, constants, outputs=outputs.replace("float[", f"{name}["), **options)


@pytest.mark.parametrize("body", [PLAIN, TIMES], ids=["div", "reciprocal"])
@pytest.mark.parametrize(
    ("read", "outputs"),
    [("mi", ["m", "i"]), ("m", ["m"]), ("i", ["", "i"])],
    ids=["both", "mean", "inverse"],
)
@pytest.mark.parametrize("target", ["ort-cpu", "onnx", "ort-cuda"])
def test_they_are_outputs_of_the_operator(body, read, outputs, target):
    if "i" not in read:
        body = body.replace(" i = Reciprocal(r)", "") if body is PLAIN else body
    proto = layer(body, ", ".join([f"{SHAPE} y", *(f"{STATISTIC} {name}" for name in read)]))
    result = rewritten(proto, target)
    (node,) = fused_nodes(result.model)
    assert list(node.output) == ["y", *outputs]
    assert result.operators == {"LayerNormalization": 1}
    assert_agree(proto, result.model)
    assert rewritten(result.model, target).operators == result.operators


def test_they_are_read_by_other_nodes_behind_the_norm():
    proto = layer(PLAIN + " z = Mul(m, i)", f"{SHAPE} y, {STATISTIC} z")
    result = rewritten(proto)
    assert result.operators == {"LayerNormalization": 1, "Mul": 1}
    assert_agree(proto, result.model)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        (PLAIN, f"{SHAPE} y, {STATISTIC} v"),
        (PLAIN, f"{SHAPE} y, {STATISTIC} r"),
        (PLAIN, f"{SHAPE} y, {SHAPE} d"),
        (
            PLAIN.replace("i = Reciprocal(r)", "two = Add(r, r) i = Reciprocal(two)"),
            f"{SHAPE} y, {STATISTIC} i",
        ),
    ],
    ids=["variance", "deviation", "centred", "half"],
)
def test_other_values_stay_what_they_were(body, outputs):
    proto = layer(body, outputs)
    result = rewritten(proto)
    assert all(len(node.output) == 1 for node in fused_nodes(result.model))
    assert_agree(proto, result.model)


def test_a_reader_before_the_norm_cannot_wait_for_it():
    early = PLAIN.replace("d = Sub", "z = Neg(m) q = Add(x, z) d = Sub").replace("Sub(x, m)", "Sub(x, m)")
    proto = layer(early, f"{SHAPE} y, {SHAPE} q")
    assert_agree(proto, rewritten(proto).model)
    assert all(len(node.output) == 1 for node in fused_nodes(rewritten(proto).model))


def test_in_half_precision_they_have_another_type_and_stay():
    proto = layer(PLAIN, f"{SHAPE} y, {STATISTIC} m", np.float16)
    result = rewritten(proto)
    assert all(len(node.output) == 1 for node in fused_nodes(result.model))
    assert_agree(proto, result.model)


@pytest.mark.parametrize("target", ["ort-cpu", "onnx"])
def test_the_mean_may_be_normalized_itself(target):
    behind = (
        " m2 = ReduceMean<axes=[0]>(m) d2 = Sub(m, m2) s2 = Mul(d2, d2) v2 = ReduceMean<axes=[0]>(s2) "
        "ve2 = Add(v2, e) r2 = Sqrt(ve2) z = Div(d2, r2)"
    )
    body = PLAIN.replace(" i = Reciprocal(r)", "") + behind
    proto = layer(body.replace("[0]", "[1]"), "float[2,4,6] y, float[2,4,1] z", x="float[2,4,6]")
    result = rewritten(proto, target)
    assert [site.output for site in result.fused] == ["y", "z"]
    assert_agree(proto, result.model)
