"""Random operators are given seeds, each in the type that it takes; what never draws is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from parity_models import model

from normfuse.parity.model import Model, serialize
from normfuse.parity.seeds import pin
from normfuse.parity.sessions import Session
from normfuse.parity.settings import Settings

ENDS = "float[B, 8] x", "float[B, 8] y"
DRAWS = {
    "normal": "y = RandomNormalLike(x)",
    "uniform": "y = RandomUniformLike(x)",
    "bernoulli": "p = Sigmoid(x) y = Bernoulli(p)",
    "multinomial": "i = Multinomial<sample_size=8>(x) y = Cast<to=1>(i)",
    "dropout": "y = Dropout(x, rate, train)",
}
CONSTANTS = {"rate": np.float32(0.5), "train": np.array(True), "idle": np.array(False)}


def of(body: str) -> Model:
    return Model(Path("m.onnx"), model(*ENDS, body, {k: v for k, v in CONSTANTS.items() if k in body}))


@pytest.mark.parametrize("name", DRAWS)
def test_two_runs_draw_the_same(name: str) -> None:
    x = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    pinned, names = pin(of(DRAWS[name]))
    first, again = (
        np.asarray(Session(serialize(pinned.proto), Settings()).run({"x": x}, ["y"])["y"]) for _ in range(2)
    )
    assert names == (pinned.proto.graph.node[-1 if name != "multinomial" else 0].output[0],)
    assert (first == again).all()
    assert first.any()


@pytest.mark.parametrize("body", ["y = Dropout(x, rate)", "y = Dropout(x, rate, idle)", "y = Neg(x)"])
def test_what_does_not_draw_is_left_as_it_is(body: str) -> None:
    which = of(body)
    assert pin(which) == (which, ())


def test_a_mode_that_the_caller_gives_may_be_training() -> None:
    which = Model(Path("m.onnx"), model(f"{ENDS[0]}, bool mode", ENDS[1], "y = Dropout(x, rate, mode)",
                                        {"rate": CONSTANTS["rate"]}))  # fmt: skip
    assert pin(which)[1] == ("y",)


def test_operators_inside_functions_are_seeded() -> None:
    which = of("y = Neg(x)")
    body = onnx.helper.make_node("RandomNormalLike", ["a"], ["b"], name="inner")
    which.proto.functions.append(
        onnx.helper.make_function("own", "Noise", ["a"], ["b"], [body], which.proto.opset_import)
    )
    pinned, names = pin(which)
    assert names == ("inner",)
    assert [a.name for a in pinned.proto.functions[0].node[0].attribute] == ["seed"]
