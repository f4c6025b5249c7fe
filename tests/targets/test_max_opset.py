"""The opset is never raised above the one that is given; what needs a newer one is left, and says so."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from small_models import assert_agree, f32, model, vector

from normfuse import Options, optimize
from normfuse.errors import UsageError
from normfuse.pipeline.rewrite import rewrite
from normfuse.targets import resolve

BOTH = (
    "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) "
    "r = Sqrt(ve) n = Div(d, r) h = Mul(n, g) "
    "hs = Mul(h, h) hv = ReduceMean<axes=[-1]>(hs) he = Add(hv, e) hr = Sqrt(he) hn = Div(h, hr) "
    "y = Mul(hn, g)"
)


def both() -> onnx.ModelProto:
    """A LayerNorm and an RMSNorm at opset 13."""
    return model(BOTH, {"e": f32(1e-3), "g": vector(8)}, x="float[4,8]", opset=13)


def ending(target: str, max_opset: int | None) -> tuple[list[str], int, dict[str, str]]:
    """Fused operators, the opset, and why what is left is left."""
    done = rewrite(ir.from_proto(both()), resolve(target, max_opset), lambda *_: None)
    result = ir.to_proto(done.model)
    assert_agree(both(), result)
    fused = [n.op_type for n in result.graph.node if n.op_type.endswith("Normalization")]
    left = {f"{s.kind}: {s.reason}": s.detail for s in done.sites if s.status == "left"}
    return fused, result.opset_import[0].version, left


def test_without_a_bound_the_standard_target_takes_what_it_needs():
    assert ending("onnx", None) == (["LayerNormalization", "RMSNormalization"], 23, {})


@pytest.mark.parametrize("bound", [17, 22])
def test_what_needs_no_more_than_the_bound_is_fused(bound):
    left = {"RMSNorm: opset-too-low": f"needs opset 23, --max-opset is {bound}"}
    assert ending("onnx", bound) == (["LayerNormalization"], 17, left)


def test_below_every_operator_all_is_left():
    fused, opset, left = ending("onnx", 16)
    assert (fused, opset) == ([], 13)
    assert set(left) == {"LayerNorm: opset-too-low", "RMSNorm: opset-too-low"}


def test_onnxruntime_has_its_own_operators_at_every_opset():
    assert ending("ort", 14) == (["LayerNormalization", "SimplifiedLayerNormalization"], 13, {})


def test_a_bound_below_the_models_own_opset_lowers_nothing():
    assert ending("onnx", 9)[1] == 13


def test_the_bound_is_an_option():
    report = optimize(both(), options=Options(target="onnx", max_opset=17, verify=False)).report
    assert report.opset_after == 17
    assert [s.reason for s in report.sites if s.status == "left"] == ["opset-too-low"]
    with pytest.raises(UsageError, match="no opset 0"):
        resolve("onnx", 0)
