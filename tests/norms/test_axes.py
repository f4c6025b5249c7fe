"""Norms over other axes than the last: channels first, instance norms, middle axes, axes of size 1."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import assert_agree, model, rewritten, vector
from spelled import assert_fused, layer_norm, rms_norm


def over(axes: str) -> dict[str, str]:
    """The reductions of a LayerNorm over other axes."""
    return {"mean": f"m = ReduceMean<axes={axes}>(x)", "variance": f"v = ReduceMean<axes={axes}>(s)"}


def test_channels_first_goes_through_transposes():
    proto = layer_norm({"g": vector(8, 1, 1), "b": vector(8, 1, 1, seed=1)}, "float[2,8,4,3]", **over("[1]"))
    assert_fused(proto, "LayerNorm", axes=(-3,), scale=vector(8), left=("Transpose",))


def test_a_middle_axis_of_a_dynamic_tensor():
    proto = layer_norm({"g": vector(8, 1), "b": vector(8, 1, seed=1)}, "float[B,8,S]", **over("[1]"))
    for sizes in ({"B": 1, "S": 1}, {"B": 2, "S": 5}):
        assert_fused(
            proto, "LayerNorm", axes=(-2,), scale=vector(8), left=("Transpose",), sizes=sizes, target="ort"
        )


def test_an_rms_norm_over_channels():
    proto = rms_norm({"g": vector(8, 1, 1)}, "float[2,8,4,3]", variance="v = ReduceMean<axes=[1]>(s)")
    assert_fused(proto, "RMSNorm", axes=(-3,), scale=vector(8), left=("Transpose",))


@pytest.mark.parametrize("dims", ["4", "4,3", "2,3,2"])
def test_all_spatial_axes_with_a_scale_of_channels_are_an_instance_norm(dims):
    rank = 2 + len(dims.split(","))
    channels = (8,) + (1,) * (rank - 2)
    constants = {"g": vector(1, *channels), "b": vector(1, *channels, seed=1)}
    axes = str(list(range(2, rank))).replace(" ", "")
    proto = layer_norm(constants, f"float[2,8,{dims}]", **over(axes))
    assert_fused(
        proto, "InstanceNorm", axes=tuple(range(2 - rank, 0)), scale=vector(8), bias=vector(8, seed=1)
    )


def test_an_instance_norm_needs_no_spatial_size():
    constants = {"g": vector(8, 1, 1), "b": vector(8, 1, 1, seed=1)}
    proto = layer_norm(constants, "float[B,8,H,W]", **over("[2,3]"))
    for sizes in ({"B": 1, "H": 3, "W": 1}, {"B": 2, "H": 4, "W": 5}):
        assert_fused(proto, "InstanceNorm", axes=(-2, -1), scale=vector(8), sizes=sizes)


def test_batch_statistics_have_no_fused_operator():
    constants = {"g": vector(8, 1, 1), "b": vector(8, 1, 1, seed=1)}
    proto = layer_norm(constants, "float[2,8,4,3]", **over("[0,2,3]"))
    result = rewritten(proto)
    assert not result.fused
    assert result.reasons == {"no-fused-operator"}


@pytest.mark.parametrize(
    ("shape", "axes"),
    [("4,6,1", "[1]"), ("1,6,1", "[1]"), ("4,6,1", "[1,2]"), ("4,1,6", "[1,2]"), ("1,1,6", "[1,2]")],
)
def test_axes_of_size_1_belong_anywhere(shape, axes):
    proto = layer_norm(x=f"float[{shape}]", affine="y = Identity(n)", **over(axes))
    result = rewritten(proto)
    assert len(result.fused) == 1
    assert_agree(proto, result.model)


def test_a_mean_in_two_steps_may_pass_an_axis_of_size_1():
    steps = "ReduceMean<axes=[-2]>({0}) {1} = ReduceMean<axes=[-1]>({1}0)"
    proto = layer_norm(
        x="float[4,1,6]",
        mean="m0 = " + steps.format("x", "m"),
        variance="v0 = " + steps.format("s", "v"),
    )
    result = rewritten(proto)
    assert [s.status for s in result.sites] == ["fused"]
    assert_agree(proto, result.model)


def test_in_double_precision_spatial_axes_are_a_layer_norm():
    constants = {"e": np.array(2.0**-10)}
    proto = layer_norm(constants, "double[2,3,4,6]", affine="y = Identity(n)", **over("[2,3]"))
    result = rewritten(proto)
    assert result.operators["LayerNormalization"] == 1
    assert_agree(proto, result.model)


def test_a_transposed_view_inside_the_norm_is_followed():
    proto = layer_norm(
        {"g": vector(8), "b": vector(8, seed=1)},
        "float[2,8,4]",
        mean="t = Transpose<perm=[0,2,1]>(x) m = ReduceMean<axes=[-1]>(t)",
        centre="d = Sub(t, m)",
        affine="k = Mul(n, g) u = Add(k, b) y = Transpose<perm=[0,2,1]>(u)",
    )
    result = rewritten(proto)
    assert result.operators["LayerNormalization"] == 1
    assert result.operators["ReduceMean"] == 0
    assert result.operators["Transpose"] == 2
    assert_agree(proto, result.model)


GROUP = (
    "i = Reshape(x, groups) j = InstanceNormalization<epsilon=0.001>(i, ones, zeros) "
    "r = Reshape(j, back) k = Mul(r, g) y = Add(k, b)"
)


@pytest.mark.parametrize(
    ("gamma", "groups"), [((8, 1, 1), [2, 4, -1]), ((8,), [2, 4, -1]), ((1, 1, 8), [0, 4, -1])], ids=str
)
def test_a_group_norm_with_its_affine_on_channels_or_on_another_axis(gamma, groups):
    constants = {
        "groups": np.array(groups),
        "back": np.array([2, 8, 4, 8]),
        "ones": np.ones(4, np.float32),
        "zeros": np.zeros(4, np.float32),
        "g": vector(*gamma),
        "b": vector(*gamma, seed=1),
    }
    proto = model(GROUP, constants, x="float[2,8,4,8]")
    for target in ("ort-cpu", "onnx", "ort-cuda"):
        result = rewritten(proto, target)
        if target != "ort-cuda":
            assert_agree(proto, result.model)
