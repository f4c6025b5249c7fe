"""The noise floor of a whole model: what is nudged, and what certified rewrites may move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from parity_models import floats, model, save, stack

from normfuse.parity.baseline import baseline_of
from normfuse.parity.check import verify
from normfuse.parity.compare import Distance
from normfuse.parity.model import Model
from normfuse.parity.settings import Settings

RNG = np.random.default_rng(0)
BIG = RNG.normal(size=(40, 40))


def noises(path: Path) -> tuple[float, float]:
    baseline = baseline_of(Model.load(path), Settings())
    trial = baseline.trials[0]
    (name,) = trial.baseline
    return baseline.floor.of(trial)[name].relative, baseline.floor.of(trial, deep=True)[name].relative


def test_weights_wherever_they_are_held_are_nudged(tmp_path: Path) -> None:
    """The input does not matter here: what noise there is comes from the weights."""
    body = "z = Mul(x, zero) a = Add(z, row) y = MatMul(a, w)"
    ends = "float[B, 40] x", "float[B, 40] y"
    inside = model(*ends, body, floats({"zero": 0, "row": RNG.normal(size=40), "w": BIG}))
    constants = onnx.ModelProto()
    constants.CopyFrom(inside)
    for tensor in inside.graph.initializer:
        node = onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
        constants.graph.node.insert(0, node)
    del constants.graph.initializer[:]
    outside = tmp_path / "outside.onnx"
    onnx.save(inside, outside, save_as_external_data=True, location="w.bin", size_threshold=0)
    for path in (outside, save(inside, tmp_path / "a.onnx"), save(constants, tmp_path / "b.onnx")):
        plain, deep = noises(path)
        assert plain == 0
        assert 1e-8 < deep < 1e-6


def test_the_table_of_token_ids_is_nudged_where_no_input_is_a_float(tmp_path: Path) -> None:
    weights = floats({"t": RNG.normal(size=(50, 40)), "w": BIG})
    proto = model("int64[B, S] ids", "float[B, S, 40] y", "e = Gather(t, ids) y = MatMul(e, w)", weights)
    plain, _ = noises(save(proto, tmp_path / "m.onnx"))
    assert 1e-8 < plain < 1e-6


def test_the_scales_of_a_resize_are_no_weights(tmp_path: Path) -> None:
    body = 'a = MatMul(x, w) y = Resize<mode="nearest">(a, , s)'
    weights = floats({"w": BIG, "s": np.array([1, 1, 2, 2])})
    proto = model("float[B, 3, 40, 40] x", "float[B, 3, P, Q] y", body, weights)
    _, deep = noises(save(proto, tmp_path / "m.onnx"))
    assert 1e-8 < deep < 1e-6


HALF = "h = Cast<to=10>(x) s = Sigmoid(h) g = Mul(h, s) c = Cast<to=1>(g) "
ENDS = "float[B, 40] x", "float[B, 40] y"


def test_a_model_that_computes_in_half_precision_is_known_to_half_precision(tmp_path: Path) -> None:
    """Its inputs are float32, and what the runtime rounds to float16 hangs on what stands beside it."""
    for name, body, low, high in (("half", HALF, 1e-4, 1e-2), ("full", "c = Sigmoid(x) ", 0, 0)):
        proto = model(*ENDS, body + "y = MatMul(c, w)", floats({"w": BIG}))
        baseline = baseline_of(Model.load(save(proto, tmp_path / f"{name}.onnx")), Settings())
        noise = baseline.floor.of_half(baseline.trials[0]).get("y", Distance()).relative
        assert low <= noise <= high


@pytest.mark.parametrize(("start", "agrees"), [(HALF, True), ("c = Sigmoid(x) ", False)])
def test_one_more_rounding_to_half_agrees_only_where_there_are_such(
    tmp_path: Path, start: str, agrees: bool
) -> None:
    plain = model(*ENDS, start + "n = Neg(c) y = MatMul(n, w)", floats({"w": BIG}))
    rounded = "a = Cast<to=10>(c) k = Reshape(a, same) d = Cast<to=1>(k) n = Neg(d) y = MatMul(n, w)"
    weights = {**floats({"w": BIG}), "same": np.array([0, 40])}
    paths = (
        save(plain, tmp_path / "a.onnx"),
        save(model(*ENDS, start + rounded, weights), tmp_path / "b.onnx"),
    )
    assert verify(*paths, Settings(deployed=False)).agrees is agrees


def test_deep_models_are_not_failed_for_rounding(tmp_path: Path) -> None:
    before, after = stack(60).save(tmp_path)
    assert verify(before, after, Settings(deployed=False)).result == "equal"


@pytest.mark.parametrize("depth", [1, 60])
def test_neither_deep_nor_shallow_models_pass_a_small_error(tmp_path: Path, depth: int) -> None:
    before, after = stack(depth, broken=0, how="one gamma wrong").save(tmp_path)
    assert verify(before, after, Settings(deployed=False)).result == "failed"


def test_a_bound_as_large_as_the_result_proves_nothing(tmp_path: Path) -> None:
    """Iterating x -> x(3.8 - 2.8x) loses every digit: nobody can say what the right result is."""
    one = "p{i} = Mul(c, v{i}) q{i} = Sub(d, p{i}) v{j} = Mul(v{i}, q{i})"
    other = "p{i} = Mul(v{i}, v{i}) q{i} = Mul(c, p{i}) r{i} = Mul(d, v{i}) v{j} = Sub(r{i}, q{i})"
    paths = []
    for name, step in (("one", one), ("other", other)):
        steps = " ".join(step.format(i=i, j=i + 1) for i in range(90))
        body = f"s = Sin(x) v0 = Mul(s, s) {steps} y = Identity(v90)"
        proto = model("float[B, 8] x", "float[B, 8] y", body, floats({"c": 2.8, "d": 3.8}))
        paths.append(save(proto, tmp_path / f"{name}.onnx"))
    verdict = verify(*paths, Settings(deployed=False))
    assert verdict.result == "inconclusive"
    assert "proves nothing" in verdict.outputs[0].detail
    assert verify(paths[0], paths[0], Settings(deployed=False)).result == "equal"
