"""Folded in float64, rounded once, and refused where the data type cannot hold the result."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from folding_models import Array, built, folded, norm, normal
from small_models import assert_agree, run

HALF = np.float16


def half_conv(
    weights: float, scale: Array | float, *, mean: float = 0.0, variance: float = 1.0, operator: str = "Conv"
) -> tuple[object, Array]:
    """An fp16 operator with a norm behind it, and an input that keeps the original finite."""
    channels = 6
    parts = {"scale": scale, "bias": 0.5, "mean": mean, "var": variance}
    parameters = {f"n_{part}": np.broadcast_to(value, channels).astype(HALF) for part, value in parts.items()}
    if operator == "Conv":
        body, x, out, shape = "c = Conv(x, w)", "float16[1,4,9,9]", "float16[1,6,7,7]", (6, 4, 3, 3)
    else:
        body, x, out, shape = "c = MatMul(x, w)", "float16[8,4]", "float16[8,6]", (4, 6)
    model = built(
        f"{body} y = BN<epsilon=0.0>(c, *n)",
        x=x,
        out=out,
        w=(normal(*shape) * weights).astype(HALF),
        **parameters,
    )
    data = np.random.default_rng(3).normal(size=[int(d) for d in x[8:-1].split(",")])
    return model, data


EDGES = [
    pytest.param(half_conv(1.0, 60.0, variance=1e-7), "fold-overflow", id="weights-above-65504"),
    pytest.param(half_conv(300.0, 3e4), "fold-overflow", id="scale-near-the-top"),
    pytest.param(half_conv(1.0, 1.0, mean=6e4, variance=1e-3), "fold-overflow", id="shift-above-65504"),
    pytest.param(half_conv(1e-3, 2e-5), "fold-underflow", id="weights-below-2^-24"),
    pytest.param(half_conv(1e-2, 1e-3), "fold-underflow", id="weights-become-subnormal"),
    pytest.param(half_conv(1.0, [1, 1, 1, 1e-5, 1, 1]), "fold-underflow", id="one-channel-sinks"),
    pytest.param(half_conv(1.0, 1.0, variance=np.inf), "not-finite-statistics", id="variance-stored-as-inf"),
    pytest.param(half_conv(1.0, 1.0, variance=0.0), "not-finite-statistics", id="variance-and-epsilon-zero"),
    pytest.param(half_conv(1.0, 4.0, mean=3e3, operator="MatMul"), "fold-overflow", id="sum-before-the-add"),
    pytest.param(half_conv(200.0, 100.0), None, id="close-to-the-top"),
    pytest.param(half_conv(1.0, 1e-3), None, id="close-to-the-bottom"),
]


@pytest.mark.parametrize(("case", "reason"), EDGES)
def test_half_precision_at_the_edge_of_its_range(case: tuple, reason: str | None) -> None:
    """B-072: never a weight that is not finite, never a finite output that becomes NaN."""
    model, data = case
    done = folded(model)
    assert done.reasons == ([reason] if reason else [])
    for tensor in done.initializers - {"n_var"}:
        assert np.isfinite(done.weight(tensor).astype(np.float64)).all()
    for size in (1e-3, 1.0, 10.0):
        feed = {"x": (data * size).astype(HALF)}
        (before,), (after,) = run(model, feed), run(done.model, feed)
        assert np.isfinite(after[np.isfinite(before)]).all()
        if reason is None:
            x, y = (values[np.isfinite(before)].astype(np.float64) for values in (before, after))
            np.testing.assert_allclose(y, x, rtol=0, atol=1e-2 * np.abs(x).max())


def test_the_refusal_tells_channel_and_value() -> None:
    model, _ = half_conv(1.0, [1, 1, 1, 1e-5, 1, 1])
    assert "channel 3: its largest weight" in folded(model).refusals[0].detail
    model, _ = half_conv(100.0, [1, 3e4, 1, 1, 1, 1])
    assert "channel 1: a weight of" in folded(model).refusals[0].detail


def test_a_channel_that_is_zero_is_not_lost() -> None:
    model, _ = half_conv(1.0, [1, 1, 1, 0, 1, 1])
    assert folded(model).operators == {"Conv": 1}


def test_weights_that_were_subnormal_before_and_are_not_scaled_stay() -> None:
    model = built(
        "c = Conv(x, w) y = Add(c, t)",
        x="float16[1,4,9,9]",
        out="float16[1,6,7,7]",
        w=np.full((6, 4, 3, 3), 1e-7, HALF),
        t=normal(6, 1, 1, dtype=HALF),
    )
    assert folded(model).operators == {"Conv": 1}


@pytest.mark.parametrize("dtype", ["float16", "float"])
def test_statistics_may_be_wider_than_the_data(dtype: str) -> None:
    """Opset 15: fp16 activations, fp32 parameters."""
    numpy_type = HALF if dtype == "float16" else np.float32
    model = built(
        "c = Conv(x, w) y = BN(c, *n)",
        x=f"{dtype}[1,4,9,9]",
        out=f"{dtype}[1,6,7,7]",
        w=normal(6, 4, 3, 3, dtype=numpy_type),
        **norm("n", 6),
    )
    done = folded(model)
    assert done.operators == {"Conv": 1}
    assert done.weight("w").dtype == numpy_type
    if dtype == "float":
        assert_agree(model, done.model)


def test_an_affine_in_a_wider_type_that_comes_back_folds() -> None:
    body = "c = Conv(x, w) u = Cast<to=1>(c) m = Mul(u, s) a = Add(m, t) y = Cast<to=10>(a)"
    model = built(
        body,
        x="float16[1,4,9,9]",
        out="float16[1,6,7,7]",
        w=normal(6, 4, 3, 3, dtype=HALF),
        s=normal(6, 1, 1),
        t=normal(6, 1, 1, seed=1),
    )
    done = folded(model)
    assert done.operators == {"Conv": 1}
    assert_agree(model, done.model, tolerance=2e-2)


def test_an_affine_that_stays_in_the_wider_type_is_left() -> None:
    """Its result may be larger than the narrow type can hold."""
    body = "c = Conv(x, w) u = Cast<to=1>(c) y = BN(u, *n)"
    model = built(
        body, x="float16[1,4,9,9]", out="float[1,6,7,7]", w=normal(6, 4, 3, 3, dtype=HALF), **norm("n", 6)
    )
    assert folded(model).reasons == ["precision"]


def test_a_large_shift_is_not_passed_on_in_half_precision() -> None:
    """The rounding of the bias would be as large as the output."""
    for mean, reasons in ((1.0, []), (50.0, ["precision"])):
        parameters = norm("n", 4, HALF) | {"n_mean": np.full(4, mean, HALF)}
        model = built(
            "n = BN(x, *n) y = Conv(n, w)",
            x="float16[1,4,9,9]",
            out="float16[1,6,7,7]",
            w=normal(6, 4, 3, 3, dtype=HALF),
            **parameters,
        )
        assert folded(model).reasons == reasons


def test_a_sum_that_overflows_before_its_bias_is_left_in_single_precision_as_well() -> None:
    """x * w * 3 is beyond float32 although (x * w + t) * 3 is not."""
    model = built(
        "c = Conv(x, w) a = Add(c, t) y = Mul(a, three)",
        x="float[1,1,1,1]",
        out="float[1,1,1,1]",
        w=np.full((1, 1, 1, 1), 2e38, np.float32),
        t=np.full((1, 1, 1), -1e38, np.float32),
        three=np.float32(3),
    )
    done = folded(model)
    assert done.operators == {"Conv": 1, "Mul": 1}
    x = {"x": np.full((1, 1, 1, 1), 0.9, np.float32)}
    assert np.isfinite(run(model, x)[0]).all()
    assert np.isfinite(run(done.model, x)[0]).all()


@pytest.mark.parametrize(("scale", "left"), [(1.0, {}), (0.5, {}), (-1.0, {}), (4.0, {"Mul": 1})])
def test_a_large_bias_that_stood_behind_the_same_sum_folds(scale: float, left: dict[str, int]) -> None:
    model = built(
        "c = Conv(x, w) a = Add(c, t) y = Mul(a, s)",
        x="float16[1,4,9,9]",
        out="float16[1,6,7,7]",
        w=normal(6, 4, 3, 3, dtype=HALF),
        t=np.full((6, 1, 1), 3000, HALF),
        s=np.full((6, 1, 1), scale, HALF),
    )
    done = folded(model)
    assert done.operators == {"Conv": 1, **left}
    assert_agree(model, done.model, tolerance=2e-3)


def test_a_row_of_affines_does_not_overflow_before_its_new_shift() -> None:
    """(x * 200 - 320) * 200 is a number where x * 40000 - 64000 is not."""
    model = built(
        "m = Mul(x, a) b = Add(m, t) y = Mul(b, a)",
        x="float16[1,4]",
        out="float16[1,4]",
        a=np.full(4, 200, HALF),
        t=np.full(4, -320, HALF),
    )
    done = folded(model)
    x = {"x": np.full((1, 4), 1.7, HALF)}
    (before,), (after,) = run(model, x), run(done.model, x)
    assert np.isfinite(before).all()
    np.testing.assert_array_equal(after, before)


def test_double_precision_is_kept() -> None:
    model = built(
        "m = MatMul(x, w) y = BN(m, *n)",
        x="double[3,4]",
        out="double[3,6]",
        w=normal(4, 6, dtype=np.float64),
        **norm("n", 6, np.float64),
    )
    done = folded(model)
    assert done.operators == {"MatMul": 1, "Add": 1}
    assert_agree(model, done.model, tolerance=1e-13)


def test_bfloat16_weights_are_rounded_once() -> None:
    """onnxruntime has no such Conv on the CPU, so the weights themselves are looked at."""
    narrow = ml_dtypes.bfloat16
    weights, parameters = normal(6, 4, 3, 3, dtype=narrow), norm("n", 6, narrow)
    model = built(
        "c = Conv(x, w) y = BN<epsilon=0.5>(c, *n)",
        x="bfloat16[1,4,9,9]",
        out="bfloat16[1,6,7,7]",
        w=weights,
        **parameters,
    )
    done = folded(model)
    assert done.operators == {"Conv": 1}
    gamma, variance = (parameters[f"n_{part}"].astype(np.float64) for part in ("scale", "var"))
    exact = weights.astype(np.float64) * (gamma / np.sqrt(variance + 0.5)).reshape(-1, 1, 1, 1)
    np.testing.assert_array_equal(done.weight("w").view(np.uint16), exact.astype(narrow).view(np.uint16))


def test_large_weights_are_scaled_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(
        "c = Conv(x, w) y = BN(c, *n)",
        x="float[1,4,9,9]",
        out="float[1,6,7,7]",
        w=normal(6, 4, 3, 3),
        **norm("n", 6),
    )
    whole = folded(model).weight("w")
    monkeypatch.setattr("normfuse.folding.weights.BLOCK", 40)
    np.testing.assert_array_equal(folded(model).weight("w"), whole)
