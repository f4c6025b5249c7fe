"""A norm between two Transposes that undo each other is said without them where that is faster."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from small_models import assert_agree, f32, model, operators, rewritten, vector

from normfuse import optimize
from normfuse.pipeline.rewrite import rewrite
from normfuse.targets import resolve

LAYER = "l = LayerNormalization<axis=-1, epsilon=0.001>(t, g, b)"
SIMPLE = "l = SimplifiedLayerNormalization<axis=-1, epsilon=0.001>(t, g)"
SPELLED = (
    "m = ReduceMean<axes=[-1]>(t) d = Sub(t, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) "
    "r = Sqrt(ve) n = Div(d, r) k = Mul(n, g) l = Add(k, b)"
)
FIRST, LAST = "t = Transpose<perm=[0,2,3,1]>(x) ", " y = Transpose<perm=[0,3,1,2]>(l)"


def turned(
    norm: str, first: str = FIRST, last: str = LAST, x: str = "float[2,6,12,12]", width: int = 6, **more: str
):
    """A norm between Transposes."""
    body = first + norm + last
    known = {"g": vector(width), "b": vector(width, seed=1), "e": f32(1e-3)}
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    return model(body, {k: v for k, v in known.items() if k in words}, x=x, **more)


@pytest.mark.parametrize("norm", [LAYER, SPELLED], ids=["fused", "spelled"])
@pytest.mark.parametrize(
    ("first", "last", "x"),
    [
        (FIRST, LAST, "float[2,6,12,12]"),
        (FIRST, LAST, "float[N,6,H,W]"),
        ("t = Transpose<perm=[0,2,1]>(x) ", " y = Transpose<perm=[0,2,1]>(l)", "float[2,6,150]"),
    ],
    ids=["images", "dynamic", "rows"],
)
def test_the_transposes_are_gone(norm, first, last, x):
    proto = turned(norm, first, last, x)
    result = rewritten(proto)
    assert result.operators["Transpose"] == 0
    (site,) = result.fused
    assert (site.kind, site.input, site.output) == ("LayerNorm", "x", "y")
    assert (site.lowering, site.detail) == ("matmul-statistics", "without the Transposes around it")
    assert_agree(proto, result.model, sizes={"N": 2, "H": 12, "W": 13})
    assert operators(rewritten(result.model).model) == result.operators


def test_the_axes_may_be_several():
    constants = {"g": vector(3, 4), "b": vector(3, 4, seed=1)}
    body = (
        "t = Transpose<perm=[0,3,1,2]>(x) l = LayerNormalization<axis=2>(t, g, b) "
        "y = Transpose<perm=[0,2,3,1]>(l)"
    )
    proto = model(body, constants, x="float[2,3,4,150]")
    result = rewritten(proto)
    assert result.operators["Transpose"] == 0
    assert_agree(proto, result.model)


@pytest.mark.parametrize(
    "proto",
    [
        turned(LAYER, last=" y = Transpose<perm=[0,2,1,3]>(l)", outputs="float[2,12,12,6] y"),
        turned(LAYER, last=LAST + " z = Neg(l)", outputs="float[2,6,12,12] y, float[2,12,12,6] z"),
        turned(LAYER, outputs="float[2,6,12,12] y, float[2,12,12,6] l"),
        turned(LAYER, x="float[2,6,5,5]"),
        turned(LAYER, x="float[1,400,12,12]", width=400),
    ],
    ids=["another-order", "read-by-others", "an-output", "small-images", "long-sums"],
)
def test_they_stay_where_they_are_needed_or_faster(proto: onnx.ModelProto):
    result = rewritten(proto)
    assert result.operators["Transpose"] == 2
    assert result.operators["LayerNormalization"] == 1


@pytest.mark.parametrize("target", ["onnx", "ort", "ort-cuda"])
def test_other_targets_keep_them(target):
    assert rewritten(turned(LAYER), target).operators["Transpose"] == 2


def test_a_transposed_value_that_others_read_stays_for_them():
    proto = turned(LAYER, last=LAST + " z = Neg(t)", outputs="float[2,6,12,12] y, float[2,12,12,6] z")
    result = rewritten(proto)
    assert result.operators["Transpose"] == 1
    assert_agree(proto, result.model)


def test_a_plan_and_a_failed_check_keep_them():
    proto = turned(SPELLED)
    for leave, plan in ((None, {"y": "as-spelled"}), ("rolled-back", None)):
        done = rewrite(
            ir.from_proto(proto),
            resolve("ort-cpu"),
            lambda kind, anchor, output, leave=leave: leave if output == "y" else None,
            plan,
        )
        assert operators(ir.to_proto(done.model)) == {"Transpose": 2, "LayerNormalization": 1}
    assert [(s.output, s.status) for s in done.sites] == [("l", "fused")]


def test_the_whole_holds():
    report = optimize(turned(LAYER, x="float[2,6,16,16]")).report
    assert [(s.output, s.status) for s in report.sites] == [("y", "fused")]
    assert report.parity is not None
    assert report.parity.agrees


def test_a_scale_that_varies_over_other_axes_keeps_them():
    body = FIRST + LAYER + LAST
    proto = model(body, {"g": vector(12, 12, 6), "b": vector(6, seed=1)}, x="float[2,6,12,12]")
    result = rewritten(proto)
    assert result.operators["Transpose"] == 2
    assert_agree(proto, result.model)


def test_a_plan_for_what_stands_there_changes_nothing():
    proto = turned(LAYER)
    done = rewrite(ir.from_proto(proto), resolve("ort-cpu"), lambda *_: None, {"y": "layer-norm"})
    assert ir.to_proto(done.model) == ir.to_proto(ir.from_proto(proto))
    assert done.sites == []
