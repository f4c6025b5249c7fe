"""Cutting a site out: what belongs to it, what is constant, and what is computed beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_models import floats, layer_norm, model

from normfuse.parity.extract import CannotExtractError, extract
from normfuse.parity.model import Model
from normfuse.parity.settings import Boundary

AFFINE = floats({"g": np.ones(16), "b": np.zeros(16)})
SITE = Boundary("LayerNorm", "x", "y")


def cut(body: str, inputs: str = "float[B, S, 16] a", boundary: Boundary = SITE, output: str = "z"):
    return extract(Model(Path("m"), model(inputs, f"float[P, Q, R] {output}", body, AFFINE)), boundary)


def types(piece) -> list[str]:
    return [node.op_type for node in piece.nodes]


def test_only_what_stands_between_is_taken() -> None:
    piece = cut("x = Relu(a) " + layer_norm("x", "y", 1e-5, "g", "b") + " z = Neg(y)")
    assert "Relu" not in types(piece)
    assert "Neg" not in types(piece)
    assert (piece.reads, piece.beside) == (("x",), ())
    assert {tensor.name for tensor in piece.initializers} == {"g", "b"}


def test_constants_are_taken_along_wherever_they_stand() -> None:
    piece = cut("one = Constant<value_float=1.0>() c = Neg(one) x = Relu(a) y = Mul(x, c) z = Neg(y)")
    assert types(piece) == ["Constant", "Neg", "Mul"]


def test_a_shape_computed_from_elsewhere_is_an_input_of_the_piece() -> None:
    piece = cut("s = Shape(a) x = Relu(a) f = Flatten(x) y = Reshape(f, s) z = Neg(y)")
    assert types(piece) == ["Flatten", "Reshape"]
    assert piece.beside == ("s",)


def test_a_shape_computed_from_the_input_belongs_to_the_piece() -> None:
    piece = cut("x = Relu(a) s = Shape(x) f = Flatten(x) y = Reshape(f, s) z = Neg(y)")
    assert piece.beside == ()
    assert sorted(types(piece)) == ["Flatten", "Reshape", "Shape"]


def test_random_numbers_are_no_constants() -> None:
    piece = cut("r = RandomNormal<shape=[16]>() x = Relu(a) y = Mul(x, r) z = Neg(y)")
    assert piece.beside == ("r",)


def test_an_input_of_the_model_can_be_the_boundary() -> None:
    piece = cut("y = Neg(a) z = Neg(y)", boundary=Boundary("Affine", "a", "y"))
    assert piece.reads == ("a",)


def test_several_inputs() -> None:
    both = Boundary("Residual", "x", "y", inputs=("x", "r"))
    piece = cut("x = Relu(a) r = Exp(a) y = Add(x, r) z = Neg(y)", boundary=both)
    assert piece.reads == ("x", "r")
    assert types(piece) == ["Add"]


@pytest.mark.parametrize(
    ("boundary", "text"),
    [
        (Boundary("", "x", "missing"), "not produced"),
        (Boundary("", "missing", "y"), "not a value"),
        (Boundary("", "z", "y"), "does not depend"),
    ],
)
def test_what_cannot_be_cut_out_says_why(boundary: Boundary, text: str) -> None:
    with pytest.raises(CannotExtractError, match=text):
        cut("x = Relu(a) y = Neg(x) z = Neg(y)", boundary=boundary)
