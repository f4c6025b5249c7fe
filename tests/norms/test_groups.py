"""GroupNorm as exporters write it, at static and dynamic sizes; an affine on another axis stays outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from small_models import Result, assert_agree, f32, mentioned, model, rewritten, vector

IN = "j = InstanceNormalization<epsilon=0.001>(i, o, z)"
DECOMPOSED = (
    "m = ReduceMean<axes=[2]>(i) d = Sub(i, m) s = Mul(d, d) v = ReduceMean<axes=[2]>(s) ve = Add(v, e) "
    "r0 = Sqrt(ve) j = Div(d, r0)"
)
CHANNELS = (8, 1, 1)
BACK = "h = Shape(x) r = Reshape(j, h)"
AFFINE = "k = Mul(r, g) y = Add(k, b)"


def grouped(
    core: str = IN,
    *,
    view: Any = (0, 4, -1),
    back: str = BACK,
    x: str = "float[2,8,4,5]",
    gamma: tuple[int, ...] = CHANNELS,
    ones: Any = None,
    **options: Any,
) -> onnx.ModelProto:
    """A norm on a view in four groups, and the view back."""
    constants = {
        "c": np.array(view),
        "o": np.ones(4, np.float32) if ones is None else ones,
        "z": np.zeros(4, np.float32),
        "g": vector(*gamma),
        "b": vector(*gamma, seed=1),
        "e": f32(1e-3),
        "t": np.array([2, 8, 4, 5]),
    }
    body = f"i = Reshape(x, c) {core} {back} {AFFINE}"
    return model(body, mentioned(body, constants), x=x, **options)


def as_group(proto: onnx.ModelProto, target: str = "ort-cpu", **sizes: int) -> Result:
    result = rewritten(proto, target)
    assert [(s.kind, s.status) for s in result.sites if s.kind not in ("Affine", "BatchNorm")] == [
        ("GroupNorm", "fused")
    ]
    assert_agree(proto, result.model, sizes=sizes)
    again = rewritten(result.model, target)
    assert not again.fused
    assert again.operators == result.operators
    return result


@pytest.mark.parametrize("core", [IN, DECOMPOSED], ids=["instance", "decomposed"])
def test_on_cpu_it_stays_on_the_view_with_one_affine(core):
    result = as_group(grouped(core))
    assert result.operators["InstanceNormalization"] == 1
    assert result.operators["Mul"] == result.operators["ReduceMean"] == 0


@pytest.mark.parametrize("core", [IN, DECOMPOSED], ids=["instance", "decomposed"])
def test_on_every_target_it_is_said_in_standard_operators(core):
    for target in ("onnx", "ort"):
        result = as_group(grouped(core), target)
        assert result.operators["InstanceNormalization"] == 1
        onnx.checker.check_model(result.model, full_check=True)


@pytest.mark.parametrize(
    ("view", "back"),
    [
        ((0, 4, -1), "r = Reshape(j, t)"),
        ((2, 4, 40), "h = Shape(x) r = Reshape(j, h)"),
        ((2, 4, -1), "r = Reshape(j, t)"),
    ],
)
def test_views_by_constants_and_by_shapes(view, back):
    as_group(grouped(view=view, back=back))


@pytest.mark.parametrize("sizes", [{"N": 1, "H": 4, "W": 5}, {"N": 3, "H": 1, "W": 2}])
def test_dynamic_sizes(sizes):
    as_group(grouped(x="float[N,8,H,W]"), **sizes)


def test_a_sequence_of_channels():
    as_group(grouped(x="float[N,8,L]", gamma=(8, 1)), N=2, L=3)


@pytest.mark.parametrize("gamma", [(1, 8, 1, 1), (8, 1, 1)])
def test_an_affine_with_or_without_a_leading_one(gamma):
    as_group(grouped(gamma=gamma))


def test_scales_of_groups_are_multiplied_into_those_of_channels():
    proto = grouped(ones=np.linspace(0.5, 2, 4).astype(np.float32))
    result = as_group(proto)
    assert result.operators["Mul"] == 0


@pytest.mark.parametrize("gamma", [(8,), (8, 1), (1, 8)], ids=str)
def test_an_affine_along_another_axis_is_not_one_of_channels(gamma):
    proto = grouped(x="float[2,8,8,8]", gamma=gamma, back="h = Shape(x) r = Reshape(j, h)")
    for target in ("ort-cpu", "onnx"):
        assert_agree(proto, rewritten(proto, target).model)


def test_a_view_back_to_other_dimensions_is_no_group_norm():
    proto = grouped(
        back="r0 = Reshape(j, t) r = Transpose<perm=[0,1,3,2]>(r0)",
        x="float[2,8,4,5]",
        outputs="float[2,8,5,4] y",
    )
    assert_agree(proto, rewritten(proto).model)


def test_channels_last_in_groups_is_not_normalized_by_channels():
    core = "p = Transpose<perm=[0,2,1]>(i) q = InstanceNormalization<epsilon=0.001>(p, o, z) "
    proto = grouped(core + "j = Transpose<perm=[0,2,1]>(q)", view=(0, -1, 4))
    assert_agree(proto, rewritten(proto).model)


def test_one_group_and_as_many_as_channels():
    for groups in (1, 8):
        constants = {
            "c": np.array([0, groups, -1]),
            "o": np.ones(groups, np.float32),
            "z": np.zeros(groups, np.float32),
            "g": vector(*CHANNELS),
            "b": vector(*CHANNELS, seed=1),
        }
        proto = model(
            f"i = Reshape(x, c) {IN} {BACK} {AFFINE}",
            constants,
            x="float[2,8,4,5]",
        )
        for target in ("ort-cpu", "onnx", "ort"):
            result = rewritten(proto, target)
            assert len(result.fused) <= 1
            assert_agree(proto, result.model)


def test_an_empty_batch():
    core = DECOMPOSED.replace("axes=[2]", "axes=[2,3,4]")
    as_group(grouped(core, view=(0, 4, 2, 4, 5), x="float[N,8,4,5]"), N=0)


@pytest.mark.parametrize(("x", "axes"), [("float[N,8,T]", "[1, 2]"), ("float[N,8,H,W]", "[1, 2, 3]")])
def test_one_group_of_unknown_sizes_needs_no_affine(x, axes):
    """A new GroupNorm(1) has a scale of ones; a LayerNorm would need one of all the sizes."""
    body = f"""
        m = ReduceMean<axes = {axes}>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = {axes}>(q)
        e = Add(v, eps) s = Sqrt(e) n = Div(d, s) g = Mul(n, one) y = Add(g, zero)
    """
    proto = model(body, {"eps": f32(1e-5), "one": f32(1), "zero": f32(0)}, x=x)
    result = rewritten(proto)
    assert [site.kind for site in result.fused] == ["GroupNorm"]
    assert_agree(proto, result.model)


def test_a_sum_over_the_product_of_unknown_sizes_is_a_mean():
    body = """
        sh = Shape(x) hw = Gather(sh, last) count = ReduceProd<keepdims = 0>(hw) n = Cast<to = 1>(count)
        t = ReduceSum(x, last) m = Div(t, n) d = Sub(x, m) q = ReduceL2<axes = [2, 3]>(d) q2 = Mul(q, q)
        v = Div(q2, n) e = Add(v, eps) s = Sqrt(e) y = Div(d, s)
    """
    proto = model(body, {"eps": f32(1e-5), "last": np.array([2, 3])}, x="float[N,8,H,W]")
    result = rewritten(proto)
    assert [site.kind for site in result.fused] == ["InstanceNorm"]
    assert_agree(proto, result.model)


def test_the_operator_with_as_many_groups_as_channels_is_an_instance_norm():
    proto = model(
        "y = GroupNormalization<num_groups=4>(x, g, b)",
        {"g": vector(4), "b": vector(4, seed=1)},
        x="float[2,4,3,5]",
        opset=21,
        ir_version=10,
    )
    result = rewritten(proto)
    assert result.operators == {"InstanceNormalization": 1}
    assert_agree(proto, result.model)


def test_what_is_written_already_leaves_no_constant_behind():
    proto = model(
        "y = GroupNormalization<num_groups=2>(x, g, b)",
        {"g": vector(4), "b": vector(4, seed=1)},
        x="float[N,4,H,W]",
        opset=21,
        ir_version=10,
    )
    once = rewritten(proto).model
    again = rewritten(once).model
    assert [t.name for t in again.graph.initializer] == [t.name for t in once.graph.initializer]


@pytest.mark.parametrize("width", [0, 4])
def test_an_image_without_any_width(width):
    constants = {"s": np.array([0, 2, -1]), "o": np.ones(2, np.float32), "z": np.zeros(2, np.float32)}
    body = (
        "v = Reshape(x, s) n = InstanceNormalization(v, o, z) h = Shape(x) r = Reshape<allowzero=1>(n, h) "
        "k = Mul(r, g) y = Add(k, b)"
    )
    proto = model(body, constants | {"g": vector(4, 1, 1), "b": vector(4, 1, 1, seed=1)}, x="float[N,4,H,W]")
    assert_agree(proto, rewritten(proto).model, sizes={"N": 2, "H": 3, "W": width})
