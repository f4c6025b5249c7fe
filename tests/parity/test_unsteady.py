"""Models that do not repeat themselves, choose among near-ties, or compute as in training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_models import WIDTH, Pair, floats, layer_norm, model, save

from normfuse.parity.caveats import custom_operators, training_nodes
from normfuse.parity.check import check, verify
from normfuse.parity.model import Model
from normfuse.parity.seeds import pin
from normfuse.parity.settings import Boundary, Settings

AFFINE = floats({"g": np.ones(WIDTH), "b": np.zeros(WIDTH)})
ENDS = f"float[B, {WIDTH}] x", f"float[B, {WIDTH}] out"


@pytest.mark.parametrize(
    "noise", ["r = RandomNormalLike(x)", "r = RandomUniformLike(x)", "q = Sigmoid(x) r = Bernoulli(q)"]
)
def test_a_random_operator_draws_alike_in_both_models(tmp_path: Path, noise: str) -> None:
    """The rewrite changes the operator's place in the graph, and with it the numbers of an unseeded one."""
    end = f" {noise} out = Add(y, r)"
    before = model(*ENDS, layer_norm("x", "y", 1e-5, "g", "b") + end, AFFINE)
    after = model(*ENDS, "y = LayerNormalization<axis=-1, epsilon=1e-5>(x, g, b)" + end, AFFINE)
    parity = check(*Pair(before, after).save(tmp_path), [Boundary("LayerNorm", "x", "y")], Settings())
    assert (parity.model.result, parity.sites["y"].result) == ("equal", "equal")
    assert any("same seeds" in note for note in parity.model.notes)


def test_a_wrong_rewrite_beside_a_random_operator_is_caught(tmp_path: Path) -> None:
    end = " r = RandomNormalLike(x) out = Add(y, r)"
    before = model(*ENDS, layer_norm("x", "y", 1e-5, "g", "b") + end, AFFINE)
    after = model(*ENDS, "y = LayerNormalization<axis=-1, epsilon=1e-2>(x, g, b)" + end, AFFINE)
    parity = check(*Pair(before, after).save(tmp_path), [Boundary("LayerNorm", "x", "y")], Settings())
    assert parity.guilty == ("y",)


def test_a_seed_that_is_there_is_kept() -> None:
    proto = model(*ENDS, "r = RandomNormalLike<seed=3.0>(x) q = RandomUniformLike(x) out = Add(r, q)")
    pinned, names = pin(Model(Path("m"), proto))
    seeds = [a.f for node in pinned.proto.graph.node for a in node.attribute if a.name == "seed"]
    assert seeds[0] == 3
    assert (len(seeds), len(names)) == (2, 2)


def test_a_model_without_random_operators_is_left_as_it_is() -> None:
    which = Model(Path("m"), model(*ENDS, "out = Neg(x)"))
    assert pin(which) == (which, ())


@pytest.mark.parametrize(
    "choose",
    [
        "y = ArgMax<axis=1>(z)",
        "w = ArgMax<axis=1, keepdims=0>(z) y = Unsqueeze(w, one)",
        "k = Constant<value_ints=[1]>() v, y = TopK<axis=1>(z, k)",
    ],
)
def test_a_near_tie_is_no_difference(tmp_path: Path, choose: str) -> None:
    """Two columns that are equal but for rounding: (a + b) - b against a."""
    ends = "float[B, 1] x", "int64[B, P] y"
    columns = "c = Constant<value_float=0.7>() s = Add(x, c) "
    same = columns + "t = Sub(s, c) z = Concat<axis=1>(x, t) one = Constant<value_ints=[1]>() " + choose
    swapped = same.replace("Concat<axis=1>(x, t)", "Concat<axis=1>(t, x)")
    assert verify(*Pair(model(*ends, same), model(*ends, swapped)).save(tmp_path), Settings()).agrees


@pytest.mark.parametrize(
    "choose", ["y = ArgMax<axis=1>(z)", "k = Constant<value_ints=[1]>() v, y = TopK<axis=1>(z, k)"]
)
def test_another_choice_without_a_tie_fails(tmp_path: Path, choose: str) -> None:
    ends = "float[B, 1] x", "int64[B, 1] y"
    first, second = (f"t = Exp(x) z = Concat<axis=1>({pair}) {choose}" for pair in ("x, t", "t, x"))
    assert (
        verify(*Pair(model(*ends, first), model(*ends, second)).save(tmp_path), Settings()).result == "failed"
    )


def test_a_model_in_training_mode_is_warned_of_first(tmp_path: Path) -> None:
    body = "y, m, v = BatchNormalization<training_mode=1>(x, s, s, s, s)"
    proto = model("float[N, 3, 4] x", "float[N, 3, 4] y", body, floats({"s": np.ones(3)}))
    proto.graph.node[0].name = "bn"
    path = save(proto, tmp_path / "m.onnx")
    assert training_nodes(Model.load(path)) == ["bn"]
    assert verify(path, path, Settings()).notes[0].startswith("exported in training mode: 1 nodes")


@pytest.mark.parametrize(("mode", "found"), [("1", 1), ("0", 0)])
def test_a_dropout_that_drops_is_training_mode(mode: str, found: int) -> None:
    body = f"r = Constant<value_float=0.5>() t = Constant<value=bool {{{mode}}}>() out = Dropout(x, r, t)"
    assert len(training_nodes(Model(Path("m"), model(*ENDS, body)))) == found


def test_operators_of_the_model_itself_are_no_custom_ones() -> None:
    proto = model(*ENDS, "a = own.Mine(x) b = com.microsoft.Gelu(a) out = other.Thing(b)",
                  domains=', "own": 1, "other": 1, "com.microsoft": 1')  # fmt: skip
    function = proto.functions.add()
    function.domain, function.name = "own", "Mine"
    assert custom_operators(Model(Path("m"), proto)) == ["other.Thing"]


def test_detections_of_varying_number_are_compared(tmp_path: Path) -> None:
    body = (
        "b = Reshape(x, s) sc = Reshape(q, t) n = Constant<value_int=5>() i = Constant<value_float=0.5>() "
        "y = NonMaxSuppression(b, sc, n, i)"
    )
    shapes = {"s": np.array([1, -1, 4]), "t": np.array([1, 1, -1])}
    proto = model("float[K, 4] x, float[K] q", "int64[D, 3] y", body, shapes)
    path = save(proto, tmp_path / "nms.onnx")
    assert verify(path, path, Settings(dims={"K": 12})).agrees
