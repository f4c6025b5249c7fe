"""The runtime's own mistakes at its default level are found, named, and never blamed on a rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from parity_models import Pair, floats, layer_norm, model, save

from normfuse.parity.check import check, verify
from normfuse.parity.deployed import OPTIMIZERS, culprits
from normfuse.parity.settings import Boundary, Settings

RNG = np.random.default_rng(0)
AFFINE = floats({"g": 1 + RNG.normal(size=8) * 0.3, "b": RNG.normal(size=8)})

# A mean without keepdims over a square tensor broadcasts along the wrong axis; the runtime fuses it anyway.
SQUARE = (
    "m = ReduceMean<axes=[-1], keepdims=0>(x) d = Sub(x, m) two = Constant<value_float=2.0>() "
    "p = Pow(d, two) "
    "v = ReduceMean<axes=[-1], keepdims=0>(p) e = Constant<value_float=1e-5>() ve = Add(v, e) r = Sqrt(ve) "
    "n = Div(d, r) k = Mul(n, g) y = Add(k, b)"
)
# The runtime makes a LayerNormalization of float16 input and float32 scale, which it then refuses.
UPCAST = (
    "two = Constant<value_float=2.0>() c = Cast<to=1>(x) "
    + layer_norm("c", "z", 1e-5, "g", "b").replace("Mul(z_d, z_d)", "Pow(z_d, two)")
    + " y = Cast<to=10>(z)"
)


def test_an_original_that_the_runtime_spoils_is_compared_at_its_own_level(tmp_path: Path) -> None:
    path = save(model("float[8, 8] x", "float[8, 8] y", SQUARE, AFFINE), tmp_path / "square.onnx")
    verdict = verify(path, path, Settings())
    assert verdict.result == "equal"
    (note,) = verdict.notes
    assert note.startswith("the original already gives another 'y'")
    assert "the same goes for the result" in note
    assert "LayerNormFusionL1" in note
    assert "disabled_optimizers=" in note


def test_a_refusal_to_load_is_named_and_the_rewrite_is_not_blamed(tmp_path: Path) -> None:
    ends = "float16[B, 8] x", "float16[B, 8] y"
    fused = "c = Cast<to=1>(x) z = LayerNormalization<axis=-1, epsilon=1e-5>(c, g, b) y = Cast<to=10>(z)"
    pair = Pair(model(*ends, UPCAST, AFFINE), model(*ends, fused, AFFINE))
    parity = check(*pair.save(tmp_path), [Boundary("LayerNorm", "c", "z")], Settings())
    assert (parity.model.result, parity.guilty) == ("equal", ())
    assert any("the original already does not load" in note for note in parity.model.notes)
    assert not any("result" in note and "does not load" in note for note in parity.model.notes)


# float16 weights of 300, a BatchNormalization that multiplies by 400: folded into one they are infinite.
FOLDED = "q = Identity(x) c = Conv<pads=[1, 1, 1, 1]>(q, w) b = BatchNormalization(c, s, o, o, v) y = Relu(b)"
WIDE = {
    "w": RNG.normal(size=(4, 3, 3, 3)) * 300,
    "s": np.full(4, 400),
    "o": np.zeros(4),
    "v": np.ones(4),
}
POWER_FOUR = SQUARE.replace("keepdims=0", "keepdims=1").replace("value_float=2.0", "value_float=4.0")


def spoilt(proto: onnx.ModelProto, tmp_path: Path, **given: str) -> str:
    path = save(proto, tmp_path / "m.onnx")
    verdict = verify(path, path, Settings(given=given))
    assert verdict.result == "equal"
    (note,) = (note for note in verdict.notes if "half precision" not in note)
    assert "the runtime's doing, not a rewrite's" in note
    return note


def test_a_fold_of_the_runtime_that_overflows_in_float16_is_named_with_its_node(tmp_path: Path) -> None:
    weights = {name: np.asarray(value, np.float16) for name, value in WIDE.items()}
    proto = model("float16[N, 3, 8, 8] x", "float16[N, 4, 8, 8] y", FOLDED, weights)
    note = spoilt(proto, tmp_path, x="random:-0.001:0.001")
    assert "became nan" in note
    assert "by its optimizer ConvBNFusion at the node 'y' (" in note
    assert "BatchNormalization" in note
    assert "disabled_optimizers=['ConvBNFusion']" in note
    assert "optimization.disable_specified_optimizers=ConvBNFusion" in note


@pytest.mark.parametrize("body", [SQUARE, POWER_FOUR], ids=["keepdims=0", "exponent 4"])
def test_a_fusion_of_what_is_no_layer_norm_is_named_with_its_node(tmp_path: Path, body: str) -> None:
    proto = model("float[8, 8] x", "float[8, 8] y", body, AFFINE)
    proto.graph.node[-1].name = "the last"
    note = spoilt(proto, tmp_path)
    assert "LayerNormFusionL1 at the node 'the last' (ReduceMean, Sub, Pow" in note


def test_a_refused_cast_before_a_layer_norm_is_named_with_its_node(tmp_path: Path) -> None:
    note = spoilt(model("float16[B, 8] x", "float16[B, 8] y", UPCAST, AFFINE), tmp_path)
    assert "does not load (Type Error" in note
    assert "LayerNormFusionL1 at the node 'z_k' (Mul)" in note
    assert "disabled_optimizers=['LayerNormFusionL1']" in note


def test_a_healthy_model_gets_no_note(tmp_path: Path) -> None:
    body = layer_norm("x", "y", 1e-5, "g", "b")
    path = save(model("float[B, 8] x", "float[B, 8] y", body, AFFINE), tmp_path / "m.onnx")
    assert verify(path, path, Settings()).notes == ()


@pytest.mark.parametrize(
    "guilty", [{"ConvBNFusion"}, {"LayerNormFusionL1", "SimplifiedLayerNormFusion"}, {OPTIMIZERS[0]}]
)
def test_culprits_are_found_by_halving(guilty: set[str]) -> None:
    asked = []

    def fixed_by(disabled: Sequence[str]) -> bool:
        asked.append(disabled)
        return guilty <= set(disabled)

    assert set(culprits(fixed_by)) == guilty
    assert len(asked) < 20


def test_a_fault_that_no_optimizer_explains() -> None:
    assert culprits(lambda disabled: False) == ()
