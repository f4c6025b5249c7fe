"""A plan gives single sites another lowering than the target's default; which there are is told."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from small_models import assert_agree, f32, model, operators, vector

from normfuse.errors import UsageError
from normfuse.pipeline.rewrite import rewrite
from normfuse.pipeline.rewritten import Rewritten
from normfuse.targets import AS_SPELLED, resolve, unknown_sites

LAYER = (
    "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) "
    "r = Sqrt(ve) n = Div(d, r) y = Mul(n, g)"
)
GROUP = (
    "sh = Shape(x) z = Reshape(x, view) m = ReduceMean<axes=[2]>(z) d = Sub(z, m) s = Mul(d, d) "
    "v = ReduceMean<axes=[2]>(s) ve = Add(v, e) r = Sqrt(ve) n = Div(d, r) f = Reshape(n, sh) y = Mul(f, g)"
)
SHORT_L2 = "r = ReduceL2<axes=[-1]>(x) y = Div(x, r)"


def layer_norm():
    return model(LAYER, {"e": f32(1e-3), "g": vector(8)}, x="float[4,8]")


def group_norm():
    constants = {"e": f32(1e-3), "g": vector(6, 1, 1), "view": ir.tensor([0, 2, -1]).numpy()}
    return model(GROUP, constants, x="float[2,6,4,4]")


def run(proto, plan=None, target="ort-cpu") -> Rewritten:
    return rewrite(ir.from_proto(proto), resolve(target), lambda *_: None, plan)


@pytest.mark.parametrize(
    ("proto", "names"),
    [
        (layer_norm(), ("layer-norm", "as-spelled")),
        (group_norm(), ("view-instance-norm", "view-layer-norm", "as-spelled")),
        (model(SHORT_L2, x="float[4,8]"), ("as-spelled", "simplified-layer-norm")),
        (model(SHORT_L2, x="float[4,64]"), ("simplified-layer-norm", "as-spelled")),
    ],
    ids=["layer", "group", "short-l2", "long-l2"],
)
def test_a_site_offers_its_lowerings_the_default_first(proto, names):
    done = run(proto)
    assert done.choices == {"y": names}
    assert [site.lowering or AS_SPELLED.name for site in done.sites] == [names[0]]


@pytest.mark.parametrize("proto", [layer_norm(), group_norm(), model(SHORT_L2, x="float[4,8]")])
def test_every_lowering_that_is_offered_computes_the_same(proto):
    for name in run(proto).choices["y"]:
        done = run(proto, {"y": name})
        assert_agree(proto, ir.to_proto(done.model))
        assert [site.lowering or AS_SPELLED.name for site in done.sites] == [name]


def test_a_site_may_be_left_as_it_is():
    done = run(layer_norm(), {"y": "as-spelled"})
    assert [(s.status, s.reason) for s in done.sites] == [("left", "no-gain")]
    assert operators(ir.to_proto(done.model)) == operators(layer_norm())
    assert done.choices == {"y": ("layer-norm", "as-spelled")}


def test_a_lowering_that_the_site_does_not_have_is_an_error_with_those_that_it_has():
    with pytest.raises(UsageError, match="'rms-norm' for 'y'") as caught:
        run(layer_norm(), {"y": "rms-norm"})
    assert caught.value.hint == "it can be layer-norm or as-spelled"


def test_a_residual_add_may_be_left_to_onnxruntime():
    proto = model(
        "h = Add(x, z) y = LayerNormalization(h, g)", {"g": vector(8)}, x="float[2,4,8]", z="float[2,4,8]"
    )
    assert run(proto).choices == {"h": ("sum", "as-spelled")}
    done = run(proto, {"h": "as-spelled"})
    assert operators(ir.to_proto(done.model)) == {"Add": 1, "LayerNormalization": 1}
    assert [(s.status, s.reason) for s in done.sites] == [("left", "no-gain")]


def test_names_of_a_plan_that_are_no_sites_are_told():
    done = run(layer_norm())
    assert unknown_sites({"y": "layer-norm", "other": "layer-norm"}, done.choices) == ["other"]
