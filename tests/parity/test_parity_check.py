"""check and verify on whole models: improvements, integers, NaN, images, missing kernels, rollback."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from parity_models import (
    WIDTH,
    Pair,
    floats,
    layer_norm,
    model,
    one_pass,
    save,
    stack,
)

from normfuse.errors import CannotVerifyError
from normfuse.parity.check import check, verify
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.verdict import UnverifiedError

RNG = np.random.default_rng(0)
AFFINE = floats({"g": 1 + RNG.normal(size=WIDTH) * 0.3, "b": RNG.normal(size=WIDTH)})
X = f"float[B, S, {WIDTH}] x"
FUSED = "y = LayerNormalization<axis=-1, epsilon=1e-5>(x, g, b)"
SITE = [Boundary("LayerNorm", "x", "y", "ln")]


def around(mean: float) -> Settings:
    x = np.random.default_rng(1).normal(size=(2, 5, WIDTH)) + mean
    return Settings(inputs=({"x": x.astype(np.float32)},))


@pytest.mark.parametrize("mean", [1000.0, 30000.0])
def test_a_one_pass_variance_is_improved_and_both_distances_are_shown(tmp_path: Path, mean: float) -> None:
    weights = {**AFFINE, **floats({"w": RNG.normal(size=(WIDTH, 3))})}
    ends = X, "float[B, S, 3] out"
    before = model(*ends, one_pass("x", "y", 1e-5, "g", "b") + " out = MatMul(y, w)", weights)
    after = model(*ends, FUSED + " out = MatMul(y, w)", weights)
    parity = check(*Pair(before, after).save(tmp_path), SITE, around(mean))
    site = parity.sites["y"]
    assert site.result == "improved"
    assert site.error_before > 100 * site.error_after
    assert site.error_after <= site.bound
    assert parity.model.agrees
    assert parity.guilty == ()


def test_an_improved_site_that_is_an_output_does_not_fail_the_model(tmp_path: Path) -> None:
    ends = X, f"float[B, S, {WIDTH}] y"
    before = model(*ends, one_pass("x", "y", 1e-5, "g", "b"), AFFINE)
    parity = check(*Pair(before, model(*ends, FUSED, AFFINE)).save(tmp_path), SITE, around(30000.0))
    assert parity.model.agrees
    assert parity.guilty == ()


def test_a_wrong_rewrite_beside_an_improved_one_is_still_found(tmp_path: Path) -> None:
    ends = X, f"float[B, S, {WIDTH}] z"
    before = model(
        *ends, one_pass("x", "y", 1e-5, "g", "b") + " " + layer_norm("y", "z", 1e-5, "g", "b"), AFFINE
    )
    wrong = FUSED + " z = LayerNormalization<axis=-1, epsilon=1e-5>(y, b, g)"
    sites = [*SITE, Boundary("LayerNorm", "y", "z", "second")]
    parity = check(*Pair(before, model(*ends, wrong, AFFINE)).save(tmp_path), sites, around(30000.0))
    assert parity.guilty == ("z",)
    assert parity.model.result == "failed"


def test_without_a_failed_certificate_the_first_boundary_that_differs_is_guilty(tmp_path: Path) -> None:
    """The MatMul before site 2 is changed too: the site is right by itself, and its result is not."""
    pair = stack(4)
    for tensor in pair.after.graph.initializer:
        if tensor.name == "w2":
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * -1, "w2"))
    parity = check(*pair.save(tmp_path), pair.sites, Settings(deployed=False))
    assert {site.result for site in parity.sites.values()} == {"equal"}
    assert parity.guilty == ("y2",)


def test_token_ids_masks_and_an_argmax(tmp_path: Path) -> None:
    tables = floats({"words": RNG.normal(size=(100, WIDTH)), "places": RNG.normal(size=(32, WIDTH))})
    ends = (
        "int64[batch, sequence] input_ids, int64[batch, sequence] position_ids, "
        "int64[batch, sequence] attention_mask",
        "int64[batch, sequence] best",
    )
    start = (
        "e1 = Gather(words, input_ids) e2 = Gather(places, position_ids) e = Add(e1, e2) "
        "m = Cast<to=1>(attention_mask) a = Constant<value_ints=[2]>() mu = Unsqueeze(m, a) x = Mul(e, mu) "
    )
    end = " best = ArgMax<axis=-1, keepdims=0>(y)"
    weights = {**AFFINE, **tables}
    before = model(*ends, start + layer_norm("x", "y", 1e-5, "g", "b") + end, weights)
    parity = check(*Pair(before, model(*ends, start + FUSED + end, weights)).save(tmp_path), SITE, Settings())
    assert parity.model.result == "equal"
    assert parity.sites["y"].result == "equal"
    assert "input_ids: indices below 100 of words" in parity.model.notes


def test_three_assignments_of_the_dynamic_dimensions_are_tried(tmp_path: Path) -> None:
    pair = stack(1)
    inputs = check(*pair.save(tmp_path), pair.sites, Settings(deployed=False)).model.inputs
    assert {text.split(",")[0] for text in inputs} == {"B=2 S=7", "B=2 S=13", "B=1 S=1"}


def test_a_fault_at_size_one_only_is_found(tmp_path: Path) -> None:
    ends = "float[B, S] x", "float[P, Q] y"
    pair = Pair(model(*ends, "y = Neg(x)"), model(*ends, "s = Squeeze(x) y = Neg(s)"))
    verdict = verify(*pair.save(tmp_path), Settings(deployed=False))
    assert verdict.result == "failed"
    assert "shape [1, 1] became []" in verdict.detail


def test_nan_at_the_same_places_agrees_and_is_counted(tmp_path: Path) -> None:
    path = save(model("float[B, 4] x", "float[B, 4] y", "y = Log(x)"), tmp_path / "log.onnx")
    verdict = verify(path, path, Settings())
    assert verdict.result == "equal"
    assert verdict.outputs[0].non_finite > 0


def test_a_one_sided_nan_is_named(tmp_path: Path) -> None:
    before = model("float[B, 4] x", "float[B, 4] y", "z = Abs(x) y = Sqrt(z)")
    after = model("float[B, 4] x", "float[B, 4] y", "y = Sqrt(x)")
    verdict = verify(*Pair(before, after).save(tmp_path), Settings())
    assert verdict.result == "failed"
    assert "became nan at [" in verdict.detail


def test_an_output_that_is_nan_everywhere_is_inconclusive(tmp_path: Path) -> None:
    path = save(model("float[B, 4] x", "float[B, 4] y", "z = Sub(x, x) y = Div(z, z)"), tmp_path / "m.onnx")
    verdict = verify(path, path, Settings())
    assert verdict.result == "inconclusive"
    assert not verdict.outputs[0].conclusive


def test_integer_outputs_must_be_equal(tmp_path: Path) -> None:
    before = model("int64[B, 4] ids", "int64[B, 4] y", "one = Constant<value_int=1>() y = Add(ids, one)")
    after = model("int64[B, 4] ids", "int64[B, 4] y", "one = Constant<value_int=2>() y = Add(ids, one)")
    assert verify(*Pair(before, after).save(tmp_path), Settings()).result == "failed"


def test_half_precision_is_said_to_be_computed_in_float32(tmp_path: Path) -> None:
    path = save(model("float16[B, 4] x", "float16[B, 4] y", "y = Abs(x)"), tmp_path / "half.onnx")
    assert any("computed in float32" in note for note in verify(path, path, Settings()).notes)


@pytest.mark.parametrize("how", ["", "eps x10"])
def test_bfloat16_runs_where_there_are_kernels_and_by_the_reference_elsewhere(
    tmp_path: Path, how: str
) -> None:
    def brain(body: str) -> onnx.ModelProto:
        proto = model(f"bfloat16[B, {WIDTH}] x", f"bfloat16[B, {WIDTH}] y", body, AFFINE)
        for tensor in proto.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor)
            wide = onnx.helper.make_tensor(
                tensor.name, onnx.TensorProto.BFLOAT16, values.shape, values.tolist()
            )
            tensor.CopyFrom(wide)
        return proto

    spelled = layer_norm("x", "y", 1e-3, "g", "b").replace(
        "y_e = Constant<value_float=0.001>()", "y_f = Constant<value_float=0.001>() y_e = Cast<to=16>(y_f)"
    )
    fused = f"y = LayerNormalization<axis=-1, epsilon={'1e-2' if how else '1e-3'}>(x, g, b)"
    parity = check(*Pair(brain(spelled), brain(fused)).save(tmp_path), SITE, Settings())
    assert any("reference evaluator" in note for note in parity.model.notes)
    assert parity.guilty == (("y",) if how else ())


@pytest.mark.parametrize(("how", "guilty"), [("", ()), ("eps x10", ("n",))])
def test_standard_onnx_without_a_kernel_is_certified_site_by_site(
    tmp_path: Path, how: str, guilty: tuple[str, ...]
) -> None:
    """No kernel for bfloat16: the runtime writes RMSNormalization out, and has none for its Mul either."""
    ends = f"bfloat16[B, {WIDTH}] x", f"float[B, {WIDTH}] y"
    spelled = (
        "h = Cast<to=1>(x) s = Mul(h, h) v = ReduceMean(s, ax) e = Constant<value_float=1e-3>() "
        "ve = Add(v, e) r = Sqrt(ve) w = Div(h, r) n = Cast<to=16>(w) y = Cast<to=1>(n)"
    )
    fused = f"n = RMSNormalization<epsilon={'1e-2' if how else '1e-3'}>(x, one) y = Cast<to=1>(n)"
    before = model(*ends, spelled, {"ax": np.array([-1])}, opset=23)
    after = model(*ends, fused, opset=23)
    one = onnx.helper.make_tensor("one", onnx.TensorProto.BFLOAT16, [WIDTH], [1.0] * WIDTH)
    after.graph.initializer.append(one)
    paths, sites = Pair(before, after).save(tmp_path), [Boundary("RMSNorm", "x", "n")]
    parity = check(*paths, sites, Settings(standard=True))
    assert parity.model.result == "certified-by-site"
    assert any("reference evaluator" in note for note in parity.model.notes)
    assert parity.guilty == guilty
    assert check(*paths, sites, Settings()).guilty == ("n",)


def test_a_missing_provider_is_an_error(tmp_path: Path) -> None:
    path = save(model("float[B, 4] x", "float[B, 4] y", "y = Abs(x)"), tmp_path / "m.onnx")
    with pytest.raises(CannotVerifyError, match="'cuda' is not active"):
        verify(path, path, Settings(provider="cuda"))


def test_a_result_without_a_kernel_names_its_rewrite(tmp_path: Path) -> None:
    wrong = "y = GroupNorm<activation=0, groups=4, epsilon=1e-5>(x, g, b)"
    before = model(
        "float[1, 4, 4, 16] x", "float[1, 4, 4, 16] y", layer_norm("x", "y", 1e-5, "g", "b"), AFFINE
    )
    after = model("float[1, 4, 4, 16] x", "float[1, 4, 4, 16] y", wrong, AFFINE)
    after.graph.node[0].domain = "com.microsoft"
    after.opset_import.add(domain="com.microsoft", version=1)
    parity = check(*Pair(before, after).save(tmp_path), SITE, Settings())
    assert parity.model.result == "failed"
    assert parity.guilty == ("y",)
    assert "does not run" in parity.sites["y"].detail


def test_a_model_with_a_custom_operator_is_certified_site_by_site(tmp_path: Path) -> None:
    def custom(body: str) -> onnx.ModelProto:
        ends = f"float[B, 4, {WIDTH}] x", f"float[B, 4, {WIDTH}] out"
        return model(*ends, body + " out = own.Thing(y)", AFFINE, domains=', "own": 1')

    pair = Pair(custom(layer_norm("x", "y", 1e-5, "g", "b")), custom(FUSED))
    with pytest.raises(UnverifiedError, match=r"does not know \(own\.Thing\)") as caught:
        check(*pair.save(tmp_path), SITE, Settings())
    assert caught.value.parity.sites["y"].result == "equal"
    assert caught.value.exit_code == 4
    assert "--custom-op-library" in caught.value.hint


@pytest.mark.parametrize("how", ["", "eps x10"])
def test_above_the_memory_limit_sites_are_certified_on_made_inputs(tmp_path: Path, how: str) -> None:
    pair = stack(3, broken=1, how=how)
    parity = check(*pair.save(tmp_path), pair.sites, Settings(max_memory=1))
    assert parity.model.result == ("failed" if how else "certified-by-site")
    assert parity.model.agrees is not bool(how)
    assert parity.guilty == (("y1",) if how else ())


def test_weights_in_an_external_file_are_found(tmp_path: Path) -> None:
    pair = stack(2)
    paths = []
    for name, proto in (("before", pair.before), ("after", pair.after)):
        path = tmp_path / name / "model.onnx"
        path.parent.mkdir()
        onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
        paths.append(path)
    parity = check(*paths, pair.sites, Settings())
    assert parity.model.result == "equal"
    assert {site.result for site in parity.sites.values()} == {"equal"}


def test_a_site_inside_a_body_is_certified_on_made_inputs(tmp_path: Path) -> None:
    def inside(body: str) -> onnx.ModelProto:
        branch = onnx.parser.parse_graph(f"then () => (float[B, 4, {WIDTH}] y) {{ {body} }}")
        other = onnx.parser.parse_graph(f"other () => (float[B, 4, {WIDTH}] w) {{ w = Neg(x) }}")
        proto = model(
            f"float[B, 4, {WIDTH}] x, bool flag", f"float[B, 4, {WIDTH}] out", "out = Identity(x)", AFFINE
        )
        node = onnx.helper.make_node("If", ["flag"], ["out"], then_branch=branch, else_branch=other)
        proto.graph.node[0].CopyFrom(node)
        return proto

    pair = Pair(inside(layer_norm("x", "y", 1e-5, "g", "b")), inside(FUSED))
    assert check(*pair.save(tmp_path), SITE, Settings()).sites["y"].result == "equal"
    pair = Pair(inside(layer_norm("x", "y", 1e-5, "g", "b")), inside(FUSED.replace("1e-5", "1e-4")))
    assert check(*pair.save(tmp_path), SITE, Settings()).guilty == ("y",)


def test_statistics_over_a_single_pixel_do_not_fail_an_exact_rewrite(tmp_path: Path) -> None:
    """The kernel computes x*k + (b - mean*k), which rounds where the original gives b exactly."""
    channels = 8
    weights = floats({"g": RNG.normal(size=channels), "b": RNG.normal(size=channels)})
    spelled = (
        "m = ReduceMean<axes=[2, 3]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[2, 3]>(s) "
        "e = Constant<value_float=1e-5>() ve = Add(v, e) r = Sqrt(ve) n = Div(d, r) "
        "a = Constant<value_ints=[1, 2]>() gu = Unsqueeze(g, a) bu = Unsqueeze(b, a) "
        "k = Mul(n, gu) y = Add(k, bu)"
    )
    ends = f"float[N, {channels}, H, W] x", f"float[N, {channels}, H, W] y"
    before = model(*ends, spelled, weights)
    after = model(*ends, "y = InstanceNormalization<epsilon=1e-5>(x, g, b)", weights)
    sites = [Boundary("InstanceNorm", "x", "y", "in")]
    parity = check(*Pair(before, after).save(tmp_path), sites, Settings(dims={"H": 1, "W": 1}))
    assert parity.model.result == "equal"
    assert parity.guilty == ()


def test_empty_outputs_prove_nothing(tmp_path: Path) -> None:
    a = save(model("float[N] x", "float[N] y", "y = Neg(x)"), tmp_path / "a.onnx")
    b = save(model("float[N] x", "float[N] y", "y = Abs(x)"), tmp_path / "b.onnx")
    verdict = verify(a, b, Settings(dims={"N": 0}))
    assert verdict.result == "inconclusive"
    assert "'y': it is empty" in verdict.detail
    assert not verdict.outputs[0].conclusive


def test_an_empty_output_beside_one_that_agrees_does_no_harm(tmp_path: Path) -> None:
    ends = "float[N] x, float[M] u", "float[N] y, float[M] v"
    a = save(model(*ends, "y = Neg(x) v = Neg(u)"), tmp_path / "a.onnx")
    b = save(model(*ends, "y = Neg(x) v = Abs(u)"), tmp_path / "b.onnx")
    assert verify(a, a, Settings(dims={"N": 0})).result == "equal"
    assert verify(a, b, Settings(dims={"N": 0})).result == "failed"


def test_an_inconclusive_verdict_says_why(tmp_path: Path) -> None:
    body = "z = Sub(x, x) y = Div(z, z)"
    a = save(model("float[N] x", "float[N] y", body), tmp_path / "a.onnx")
    verdict = verify(a, a, Settings())
    assert verdict.result == "inconclusive"
    assert "NaN or infinite everywhere" in verdict.detail


def test_out_of_memory_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError("64 GiB")

    monkeypatch.setattr(sys.modules["normfuse.parity.check"], "baseline_of", full)
    a = save(model("float[N] x", "float[N] y", "y = Neg(x)"), tmp_path / "a.onnx")
    with pytest.raises(CannotVerifyError, match=r"not enough memory.*64 GiB"):
        verify(a, a, Settings())
