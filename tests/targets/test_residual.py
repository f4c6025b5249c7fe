"""Residual adds before a norm are kept from onnxruntime's slower SkipLayerNormalization."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import ALL, assert_agree, f32, mentioned, model, operators, rewritten, session, vector

LAYER = (
    "m = ReduceMean<axes=[-1]>(h) d = Sub(h, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve = "
    "Add(v, e) r = Sqrt(ve) "
    "n = Div(d, r) k = Mul(n, g) y = Add(k, b)"
)
RMS = "s = Mul(h, h) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) r = Sqrt(ve) n = Div(h, r) y = Mul(n, g)"
FUSED = "y = LayerNormalization<axis=-1>(h, g, b)"


def residual(
    norm: str, dtype: type = np.float32, add: str = "h = Add(x, z)", opset: int = 17
) -> onnx.ModelProto:
    """A post-norm residual."""
    constants = {
        "e": np.array(1e-3, dtype),
        "g": vector(8).astype(dtype),
        "b": vector(8, seed=1).astype(dtype),
    }
    body = add + " " + norm
    name = {np.float64: "double", np.float16: "float16"}.get(dtype, "float")
    shape = f"{name}[2,4,8]"
    return model(body, mentioned(body, constants), x=shape, z=shape, opset=opset)


def as_deployed(proto: onnx.ModelProto, folder: Path) -> Counter[str]:
    """The operators that onnxruntime runs at the level that users have."""
    path = folder / "optimized.onnx"
    session(proto, ALL, str(path))
    return operators(onnx.load(path))


@pytest.mark.parametrize("norm", [LAYER, RMS, FUSED])
def test_onnxruntime_builds_no_skip_norm_from_the_result(norm, tmp_path):
    proto = residual(norm)
    result = rewritten(proto)
    assert [s.kind for s in result.sites if s.status == "guarded"] == ["Residual"]
    assert result.operators["Sum"] == 1
    assert not any(op.startswith("Skip") for op in as_deployed(result.model, tmp_path))
    assert_agree(proto, result.model)


def test_without_the_guard_it_does(tmp_path):
    result = rewritten(residual(LAYER), "ort")
    assert result.operators["Add"] == 1
    assert as_deployed(result.model, tmp_path)["SkipLayerNormalization"] == 1


@pytest.mark.parametrize("target", ["onnx", "ort", "ort-cuda"])
def test_other_targets_keep_the_add(target):
    result = rewritten(residual(FUSED), target)
    assert result.operators == {"Add": 1, "LayerNormalization": 1}


@pytest.mark.parametrize(
    ("dtype", "operator"), [(np.float32, "Sum"), (np.float64, "Sum"), (np.float16, "Add")]
)
def test_only_types_that_have_a_sum_kernel(dtype, operator):
    proto = residual(FUSED, dtype)
    result = rewritten(proto)
    assert result.operators == {operator: 1, "LayerNormalization": 1}
    assert_agree(proto, result.model)


def test_the_bias_of_a_linear_layer_stays_an_add():
    proto = residual(FUSED, add="h = Add(x, b2) y2 = Neg(z)".replace("b2", "b"))
    result = rewritten(proto)
    assert result.operators["Sum"] == 0


def test_an_add_with_other_readers_is_guarded_as_well():
    proto = model(
        "h = Add(x, z) k = LayerNormalization<axis=-1>(h, g) y = Add(h, k)",
        {"g": vector(8)},
        x="float[2,4,8]",
        z="float[2,4,8]",
    )
    result = rewritten(proto)
    assert result.operators == {"Sum": 1, "LayerNormalization": 1, "Add": 1}
    assert_agree(proto, result.model)


def test_a_residual_that_broadcasts_is_the_same_sum():
    proto = model(
        "h = Add(x, z) y = LayerNormalization<axis=-1>(h, g)",
        {"g": vector(8)},
        x="float[2,4,8]",
        z="float[B,1,8]",
    )
    result = rewritten(proto)
    assert result.operators["Sum"] == 1
    for size in (1, 2):
        assert_agree(proto, result.model, sizes={"B": size})


def test_a_guard_that_is_skipped_is_not_set():
    result = rewritten(residual(FUSED), skip=["h"])
    assert result.operators == {"Add": 1, "LayerNormalization": 1}


def test_a_second_run_guards_nothing():
    result = rewritten(residual(LAYER))
    again = rewritten(result.model)
    assert not again.sites
    assert again.model == result.model


def test_epsilon_and_parameters_are_untouched():
    proto = residual(FUSED)
    before = [n for n in proto.graph.node if n.op_type == "LayerNormalization"]
    after = [n for n in rewritten(proto).model.graph.node if n.op_type == "LayerNormalization"]
    assert [list(n.input) for n in before] == [list(n.input) for n in after]
    assert f32(1.0).dtype == np.float32
