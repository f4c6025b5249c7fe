"""The affine of a norm stays with it: what a target writes in one run is nothing to fold in the next."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from small_models import model, vector

from normfuse.pipeline.rewrite import rewrite
from normfuse.targets import resolve

LAYER = (
    "m = ReduceMean<axes=[1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[1]>(s) ve = Add(v, e) "
    "r = Sqrt(ve) n = Div(d, r) k = Mul(n, g) a = Add(k, b) "
)
BESIDE = LAYER.replace("ve = Add(v, e) r = Sqrt(ve)", "root = Sqrt(v) r = Add(root, e)")
GROUP = (
    "u = Reshape(x, views) i = InstanceNormalization<epsilon=1e-5>(u, ones, zeros) t = Reshape(i, back) "
    "k = Mul(t, g) a = Add(k, b) "
)
BEHIND = {
    "Conv": "y = Conv(a, w)",
    "strided Conv": "y = Conv<strides=[2, 2]>(a, w)",
    "MatMul": "f = Reshape(a, rows) h = Transpose<perm=[0, 2, 1]>(f) y = MatMul(h, q)",
    "Gemm": "f = Flatten(a) y = Gemm(f, flat)",
}

_CONVOLUTIONS = (BEHIND["Conv"], BEHIND["strided Conv"])  # beside them ort-cpu leaves the form as it is


def network(norm: str, behind: str) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    constants = {
        "e": np.array(1e-3, np.float32),
        "g": vector(6, 1, 1),
        "b": vector(6, 1, 1, seed=1),
        "views": np.array([2, 3, -1]),
        "ones": np.ones(3, np.float32),
        "zeros": np.zeros(3, np.float32),
        "back": np.array([2, 6, 12, 12]),
        "rows": np.array([2, 6, 144]),
        "w": rng.normal(size=(4, 6, 1, 1)).astype(np.float32),
        "q": rng.normal(size=(6, 4)).astype(np.float32),
        "flat": rng.normal(size=(864, 4)).astype(np.float32),
    }
    body = norm + behind
    used = {name: value for name, value in constants.items() if f"{name})" in body or f"{name}," in body}
    return model(body, used, x="float[2,6,12,12]", opset=17)


@pytest.mark.parametrize("target", ["ort-cpu", "ort", "onnx"])
@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
@pytest.mark.parametrize("norm", [LAYER, BESIDE, GROUP], ids=["layer", "beside", "group"])
def test_a_second_run_finds_nothing(norm: str, behind: str, target: str) -> None:
    first = rewrite(ir.from_proto(network(norm, behind)), resolve(target), lambda *_: None)
    expected = 0 if (norm, target) == (BESIDE, "ort-cpu") and behind in _CONVOLUTIONS else 1
    assert [site.status for site in first.sites].count("fused") == expected
    once = ir.to_proto(first.model).SerializeToString(deterministic=True)
    again = rewrite(ir.from_proto(onnx.load_from_string(once)), resolve(target), lambda *_: None)
    assert [site for site in again.sites if site.status != "left"] == []
    assert ir.to_proto(again.model).SerializeToString(deterministic=True) == once


def test_a_batch_norm_of_the_model_itself_still_folds_forward() -> None:
    body = (
        GROUP.replace("k = Mul(t, g) a = Add(k, b)", "a = BatchNormalization(t, p, p, z, p)") + BEHIND["Conv"]
    )
    ones, zeros = np.ones(6, np.float32), np.zeros(6, np.float32)
    proto = network(GROUP, BEHIND["Conv"])
    constants = {
        t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer if t.name not in ("g", "b")
    }
    plain = model(body, {**constants, "p": ones, "z": zeros}, x="float[2,6,12,12]", opset=17)
    done = rewrite(ir.from_proto(plain), resolve("ort-cpu"), lambda *_: None)
    assert [(site.kind, site.operator) for site in done.sites if site.status == "folded"] == [
        ("BatchNorm", "Conv")
    ]
