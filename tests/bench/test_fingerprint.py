"""Sites that take the same time are told from others without measuring them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from small_models import f32, mentioned, model, vector

from normfuse.bench.fingerprint import fingerprint

WIDTH = 6


SPELLED = (
    "s = Pow(x, p) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) r = Sqrt(ve) n = Div(x, r) y = Mul(n, {scale})"
)


def norm(
    scale: str = "g",
    epsilon: float = 1e-5,
    shape: str = "4,6",
    seed: int = 0,
    changes: dict[str, str] | None = None,
) -> onnx.ModelProto:
    """An RMSNorm in pieces, of which one thing differs; changes: of its text."""
    body = SPELLED.format(scale=scale)
    for part, other in (changes or {}).items():
        body = body.replace(part, other)
    constants = {"p": f32(2), "e": f32(epsilon), scale: vector(WIDTH, seed=seed)}
    return model(body, mentioned(body, constants), x=f"float[{shape}]")


def test_names_do_not_count() -> None:
    other = norm(changes={"s =": "other =", "(s)": "(other)"})
    assert fingerprint([norm()]) == fingerprint([other]) == fingerprint([norm(scale="gamma")])


def test_the_values_of_a_scale_do_not_count() -> None:
    assert fingerprint([norm(seed=0)]) == fingerprint([norm(seed=5)])


@pytest.mark.parametrize(
    "other",
    [
        norm(shape="8,6"),
        norm(epsilon=1e-6),
        norm(changes={"[-1]": "[0]"}),
        norm(changes={"Pow(x, p)": "Mul(x, x)"}),
        norm(changes={"Div(x, r)": "Div(r, x)"}),
    ],
    ids=["shape", "a constant", "an attribute", "an operator", "the order of operands"],
)
def test_what_changes_the_work_does(other: onnx.ModelProto) -> None:
    assert fingerprint([norm()]) != fingerprint([other])


def test_integers_count_since_they_are_shapes_and_axes() -> None:
    def reshaped(*shape: int) -> onnx.ModelProto:
        return model("y = Reshape(x, s)", {"s": np.array(shape)}, x="float[4,6]", outputs="float[a,b] y")

    assert fingerprint([reshaped(6, 4)]) == fingerprint([reshaped(6, 4)])
    assert fingerprint([reshaped(6, 4)]) != fingerprint([reshaped(2, 12)])


def test_a_constant_node_counts_as_an_initializer_does() -> None:
    def spelled(values: str) -> onnx.ModelProto:
        return model(f"c = Constant<value=float[2] {{{values}}}>() y = Mul(x, c)", x="float[4,2]")

    assert fingerprint([spelled("1, 2")]) == fingerprint([spelled("3, 4")])


def test_every_candidate_counts() -> None:
    assert fingerprint([norm(), norm()]) != fingerprint([norm(), norm(shape="8,6")])
    assert fingerprint([norm()]) != fingerprint([norm(), norm()])
