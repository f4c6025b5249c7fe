"""What folds into nothing is at least one operator; a norm of constants is a constant."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from folding_models import Folded, assert_left, built, folded, norm, normal
from small_models import assert_agree, operators

from normfuse.folding import rejoin
from normfuse.graph.facts import Facts

IMAGE = "float[2,4,5,5]"
S, T = {"s": normal(4, 1, 1)}, {"t": normal(4, 1, 1, seed=1)}


@pytest.mark.parametrize(
    ("chain", "left"),
    [
        ("a = BN(x, *n) b = Mul(a, s) y = Add(b, t)", {"BatchNormalization": 1}),
        ("b = Mul(x, s) a = BN(b, *n) y = Sub(a, t)", {"BatchNormalization": 1}),
        ("a = BN(x, *n) y = BN(a, *m)", {"BatchNormalization": 1}),
        ("a = Mul(x, s) y = Mul(a, t)", {"Mul": 1}),
        ("a = Add(x, s) b = Sub(t, a) y = Neg(b)", {"Add": 1}),
        ("a = Mul(x, s) b = Add(a, t) y = Div(b, half)", {"Mul": 1, "Add": 1}),
        ("a = Mul(x, s) y = Mul(a, map)", {"Mul": 1}),
    ],
)
def test_affines_in_a_row_become_as_few_as_they_can(chain: str, left: dict[str, int]) -> None:
    model = built(
        chain,
        x=IMAGE,
        out=IMAGE,
        half=np.float32(0.5),
        map=normal(1, 4, 5, 5),
        **S,
        **T,
        **norm("n", 4),
        **norm("m", 4),
    )
    done = folded(model)
    assert done.operators == left
    assert_agree(model, done.model)
    assert len(done.records) == 1
    assert done.records[0].output == "y"
    assert not folded(done.model).records


@pytest.mark.parametrize(
    "chain",
    [
        "a = Mul(x, s) y = Add(a, t)",
        "a = Mul(x, s) b = Relu(a) y = Mul(b, s)",
        "a = Mul(x, s) b = Mul(a, s) y = Add(a, b)",
        "a = Mul(x, tiny) y = Mul(a, tiny)",
        "a = LayerNormalization(x, g) b = Mul(a, s) y = Mul(b, s)",
        "a = BN(x, *n) y = Mul(a, map)",
    ],
)
def test_other_affines_stay(chain: str) -> None:
    model = built(
        chain,
        x=IMAGE,
        out=IMAGE,
        tiny=np.float32(1e-30),
        g=normal(5),
        map=normal(1, 4, 5, 5),
        **S,
        **T,
        **norm("n", 4),
    )
    assert_left(model, *(["no-linear-neighbour"] if "BN" in chain else []))


def test_a_norm_that_took_in_its_neighbours_still_says_why_it_stays() -> None:
    body = "c = Conv(x, w) a = BN(c, *n) b = Mul(a, s) y = Add(b, c)"
    model = built(body, x=IMAGE, out=IMAGE, w=normal(4, 4, 1, 1), **S, **norm("n", 4))
    done = folded(model)
    assert done.reasons == ["linear-output-reused"]
    assert done.operators == {"Conv": 1, "BatchNormalization": 1, "Add": 1}
    assert_agree(model, done.model)


@pytest.mark.parametrize("first", ["Conv(x, w)", "Relu(x)"])
def test_a_long_chain_goes_in_pieces(first: str) -> None:
    steps = " ".join(f"v{k + 1} = {'Mul' if k % 2 else 'Add'}(v{k}, one)" for k in range(200))
    one = np.full((4, 1, 1), 0.999, np.float32)
    model = built(f"v0 = {first} {steps} y = Relu(v200)", x=IMAGE, out=IMAGE, w=normal(4, 4, 1, 1), one=one)
    done = folded(model)
    assert done.operators == ({"Conv": 1, "Relu": 1} if "Conv" in first else {"Relu": 2, "Mul": 1, "Add": 1})
    assert_agree(model, done.model)
    assert len(done.records) == 1


def test_weight_standardization_is_a_constant() -> None:
    """A norm in training mode whose batch is the weights."""
    body = "r = Reshape(w, flat) n, m, v = BN<training_mode=1>(r, *n) k = Reshape(n, back) "
    model = built(
        f"{body} y = Conv(x, k)",
        x=IMAGE,
        out="float[2,6,3,3]",
        w=normal(6, 4, 3, 3),
        flat=np.array([1, 6, -1]),
        back=np.array([6, 4, 3, 3]),
        **norm("n", 6),
    )
    done = folded(model)
    assert done.operators == {"Reshape": 1, "Conv": 1}
    assert [(r.operator, r.output) for r in done.records] == [("Constant", "n")]
    assert done.reasons == []
    assert folded(model, skip=["n"]).operators == {"Reshape": 2, "BatchNormalization": 1, "Conv": 1}
    assert_agree(model, done.model)


def test_a_norm_of_constants_in_inference_is_a_constant() -> None:
    model = built(
        "n = BN(w, *n) y = Mul(x, n)", x="float[3,4]", out="float[3,4]", w=normal(3, 4), **norm("n", 4)
    )
    done = folded(model)
    assert done.operators == {"Mul": 1}
    assert_agree(model, done.model)


def joined(chain: str, shape: str = IMAGE, skip: str = "", **constants: np.ndarray) -> Folded:
    """A model after `rejoin` alone."""
    model = built(chain, x=shape, out=shape, **constants)
    loaded = ir.from_proto(model)
    records = rejoin(Facts(loaded), lambda kind, anchor, output: output == skip)
    result = ir.to_proto(loaded)
    assert_agree(model, result)
    return Folded(result, records, [])


@pytest.mark.parametrize(
    "chain", ["a = Mul(x, s) y = Add(a, t)", "a = Add(x, t) y = Mul(a, s)", "a = Div(x, s) y = Sub(a, t)"]
)
def test_a_scale_and_shift_per_channel_are_one_norm_where_a_target_asks(chain: str) -> None:
    done = joined(chain, **S, **T)
    assert done.operators == {"BatchNormalization": 1}
    assert (done.records[0].operator, done.records[0].output) == ("BatchNormalization", "y")


@pytest.mark.parametrize(
    ("chain", "shape"),
    [
        ("a = Mul(x, s) y = Add(a, half)", IMAGE),
        ("a = Mul(x, s) y = Mul(a, s)", IMAGE),
        ("a = Mul(x, half) y = Add(a, half)", IMAGE),
        ("a = Mul(x, last) y = Add(a, last)", IMAGE),
        ("a = Mul(x, s) y = Add(a, t)", "float[2,4,5]"),
        ("a = Mul(x, s) b = Relu(a) y = Add(b, t)", IMAGE),
    ],
)
def test_anything_else_is_not_rejoined(chain: str, shape: str) -> None:
    ones = [1] * (shape.count(",") - 1)
    s, t = normal(4, *ones), normal(4, *ones, seed=1)
    done = joined(chain, shape, s=s, t=t, half=np.float32(0.5), last=normal(5))
    assert not done.records
    assert "BatchNormalization" not in operators(done.model)


def test_a_skipped_pair_is_not_rejoined() -> None:
    assert not joined("a = Mul(x, s) y = Add(a, t)", skip="y", **S, **T).records
