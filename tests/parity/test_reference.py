"""float64 evaluation: no rounding of the model's own type is left; slow or missing operators are replaced."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from parity_models import floats, layer_norm, model, rms_norm

from normfuse.parity.reference import CannotEvaluateError, Float64, evaluator

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 16)).astype(np.float32)
AFFINE = floats({"g": RNG.normal(size=16), "b": RNG.normal(size=16)})


def exact_layer_norm(x: np.ndarray, epsilon: float) -> np.ndarray:
    x = x.astype(np.float64)
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(epsilon)) * AFFINE["g"] + AFFINE["b"]


@pytest.mark.parametrize(
    "body",
    [
        layer_norm("x", "y", 1e-5, "g", "b"),
        "y = LayerNormalization<axis=-1, epsilon=1e-5>(x, g, b)",
        layer_norm("x", "y", 1e-5, "g", "b").replace(
            "y_k = Mul(y_n, g)", "q = Cast<to=1>(y_n) y_k = Mul(q, g)"
        ),
    ],
)
def test_every_spelling_is_evaluated_in_float64(body: str) -> None:
    truth = Float64.of(model("float[B, S, 16] x", "float[B, S, 16] y", body, AFFINE)).output({"x": X})
    assert truth.dtype == np.float64
    assert np.abs(truth - exact_layer_norm(X, 1e-5)).max() < 1e-14


def test_half_precision_is_read_as_stored_and_not_rounded_again() -> None:
    body = "h = Cast<to=10>(x) s = Mul(h, h) y = Cast<to=1>(s)"
    truth = Float64.of(model("float[B, 2] x", "float[B, 2] y", body)).output(
        {"x": np.float32([[1.0001, 3.3]])}
    )
    assert np.allclose(truth, np.float64(np.float32([[1.0001, 3.3]])) ** 2, rtol=1e-15)


def test_constants_with_several_elements_can_be_moved() -> None:
    piece = Float64.of(model("float[B, S, 16] x", "float[B, S, 16] y", rms_norm("x", "y", 1e-5, "g"), AFFINE))
    assert set(piece.constants) == {"g", "b"}
    moved = piece.output({"x": X}, {**piece.constants, "g": piece.constants["g"] * 2})
    assert np.allclose(moved, 2 * piece.output({"x": X}))


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "strides=[2, 2]",
        "pads=[1, 0, 1, 2]",
        "strides=[2, 3], output_padding=[1, 1]",
        "dilations=[2, 1], pads=[1, 1, 1, 1]",
        "group=2",
        'auto_pad="SAME_UPPER", strides=[2, 2]',
    ],
)
def test_conv_transpose_equals_the_runtime(attributes: str) -> None:
    groups = 2 if "group" in attributes else 1
    w = RNG.normal(size=(4, 6 // groups, 3, 2)).astype(np.float32)
    proto = model(
        "float[N, 4, H, W] x", "float[A, C, D, E] y", f"y = ConvTranspose<{attributes}>(x, w, b)"
        .replace("<>", ""), floats({"w": w, "b": RNG.normal(size=6)}),
    )  # fmt: skip
    x = RNG.normal(size=(2, 4, 5, 6)).astype(np.float32)
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    assert np.abs(evaluator(proto).run(None, {"x": x})[0] - expected).max() < 1e-5


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "strides=[2, 2], pads=[1, 0, 1, 2]",
        "dilations=[2, 1], strides=[1, 3]",
        "group=2, pads=[1, 1, 1, 1]",
        'auto_pad="SAME_LOWER", strides=[2, 2]',
    ],
)
def test_conv_equals_the_runtime(attributes: str) -> None:
    groups = 2 if "group" in attributes else 1
    w = RNG.normal(size=(6, 4 // groups, 3, 2)).astype(np.float32)
    body = f"y = Conv<{attributes}>(x, w, b)".replace("<>", "")
    ends = "float[N, 4, H, W] x", "float[A, C, D, E] y"
    proto = model(*ends, body, floats({"w": w, "b": RNG.normal(size=6)}))
    x = RNG.normal(size=(2, 4, 7, 8)).astype(np.float32)
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    assert np.abs(evaluator(proto).run(None, {"x": x})[0] - expected).max() < 1e-5


def test_an_unknown_operator_cannot_be_evaluated() -> None:
    proto = model("float[B, 2] x", "float[B, 2] y", "y = own.Thing(x)", domains=', "own": 1')
    with pytest.raises(CannotEvaluateError):
        Float64.of(proto).output({"x": np.ones((1, 2), np.float32)})


@pytest.mark.parametrize("opset", [7, 9, 13, 14, 15])
def test_batch_norm_takes_the_statistics_as_given_at_every_opset(opset: int) -> None:
    """The evaluator's own operator mixes those of the batch in, below opset 14."""
    weights = floats({n: np.random.default_rng(i).uniform(0.5, 2, 3) for i, n in enumerate("sbmv")})
    body = "y = BatchNormalization<epsilon=0.01>(x, s, b, m, v)"
    proto = model("float[N, 3, P] x", "float[N, 3, P] y", body, weights, opset=opset)
    x = np.random.default_rng(9).normal(size=(2, 3, 5)).astype(np.float32)
    s, b, m, v = (np.float64(weights[n])[:, None] for n in "sbmv")
    wanted = (x - m) / np.sqrt(v + np.float32(0.01)) * s + b
    assert np.abs(Float64.of(proto).output({"x": x}) - wanted).max() < 1e-8
