"""Made rows show what ordinary ones hide: each of these faults is seen on one of them alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_models import WIDTH, Pair, floats, layer_norm, model, rms_norm

from normfuse.parity.check import check
from normfuse.parity.settings import Boundary, Settings

AFFINE = floats({"g": np.linspace(0.5, 2, WIDTH), "b": np.linspace(-1, 1, WIDTH)})
FUSED = "y = LayerNormalization<axis=-1, epsilon=1e-5>({x}, g, b)"
CONSTANT = "{y} = Constant<value_float={value}>()"
X = f"float[B, S, {WIDTH}] x", f"float[B, S, {WIDTH}] y"


def verdict(tmp_path: Path, before: str, after: str, constants: dict[str, np.ndarray] | None = None) -> str:
    """The result of the certificate, and the input that decided."""
    constants = AFFINE if constants is None else constants
    pair = Pair(model(*X, before, constants), model(*X, after, constants))
    site = check(*pair.save(tmp_path), [Boundary("LayerNorm", "x", "y")], Settings(deployed=False)).sites["y"]
    return f"{site.result} on {site.detail}"


@pytest.mark.parametrize(
    ("condition", "label"),
    [
        ("m = ReduceMax<axes=[-1]>(x) c = Less(m, zero)", "failed on shifted"),
        ("m = ReduceMin<axes=[-1]>(x) c = Greater(m, ten)", "failed on offset 1,000"),
        (
            "m = ReduceMax<axes=[-1]>(x) l = ReduceL1<axes=[-1]>(x) h = Mul(l, half) c = Greater(m, h)",
            "failed on uneven",
        ),
    ],
    ids=["all negative", "all positive", "one element stands out"],
)
def test_a_fault_for_some_rows_alone_is_seen(tmp_path: Path, condition: str, label: str) -> None:
    numbers = {"zero": 0.0, "half": 0.5, "ten": 10.0}
    given = " ".join(CONSTANT.format(y=y, value=value) for y, value in numbers.items() if y in condition)
    after = f"{given} {condition} z = {FUSED.format(x='x')[4:]} n = Neg(z) y = Where(c, n, z)"
    assert verdict(tmp_path, layer_norm("x", "y", 1e-5, "g", "b"), after) == label


@pytest.mark.parametrize("epsilon", [1.0, 1e-3, 1e-12, 1e-20, 1e-36])
def test_an_epsilon_matters_somewhere_whatever_its_size(tmp_path: Path, epsilon: float) -> None:
    after = f"y = SimplifiedLayerNormalization<axis=-1, epsilon={epsilon * 10}>(x, g)"
    constants = {"g": AFFINE["g"]}
    assert verdict(tmp_path, rms_norm("x", "y", epsilon, "g"), after, constants).startswith("failed")
    right = after.replace(str(epsilon * 10), str(epsilon))
    assert verdict(tmp_path, rms_norm("x", "y", epsilon, "g"), right, constants).startswith("equal")


def test_a_clamp_is_no_sum_of_squares(tmp_path: Path) -> None:
    """x / max(|x|, c) and x / sqrt(|x|^2 + c^2) differ where |x| is about c alone."""
    before = "n = ReduceL2<axes=[-1]>(x) c = Constant<value_float=1e-12>() m = Max(n, c) y = Div(x, m)"
    after = (
        "n = ReduceSumSquare<axes=[-1]>(x) c = Constant<value_float=1e-24>() m = Add(n, c) "
        "r = Sqrt(m) y = Div(x, r)"
    )
    assert verdict(tmp_path, before, after, {}).startswith("failed on tiny variance")


@pytest.mark.parametrize(("epsilon", "result"), [(1e-12, "equal"), (1e-11, "failed")])
def test_a_small_epsilon_matters_in_half_precision_that_is_computed_in_float32(
    tmp_path: Path, epsilon: float, result: str
) -> None:
    x, y = f"float16[B, S, {WIDTH}] x", f"float16[B, S, {WIDTH}] y"
    spelled = "c = Cast<to=1>(x) " + layer_norm("c", "n", 1e-12, "g", "b") + " y = Cast<to=10>(n)"
    halves = {name: value.astype(np.float16) for name, value in AFFINE.items()}
    wide = {name: value.astype(np.float32) for name, value in halves.items()}
    fused = f"y = LayerNormalization<axis=-1, epsilon={epsilon}>(x, g, b)"
    pair = Pair(model(x, y, spelled, wide), model(x, y, fused, halves))
    parity = check(*pair.save(tmp_path), [Boundary("LayerNorm", "x", "y")], Settings(deployed=False))
    assert parity.sites["y"].result == result


def test_what_holds_for_one_length_alone_is_seen(tmp_path: Path) -> None:
    """Eight tokens of a sequence are kept: all of one, and of seven."""
    numbers = "s = Constant<value_ints=[0]>() e = Constant<value_ints=[8]>() a = Constant<value_ints=[1]>()"
    after = f"{numbers} k = Slice(x, s, e, a) {FUSED.format(x='k')}"
    found = verdict(tmp_path, layer_norm("x", "y", 1e-5, "g", "b"), after)
    assert found.startswith("failed on B=2 S=13")
