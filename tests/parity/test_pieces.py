"""The two sides of a rewrite as they are run alone on another provider than the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from parity_models import floats, model

from normfuse.parity import pieces
from normfuse.parity.guarded import Guarded
from normfuse.parity.light import LightModel
from normfuse.parity.pieces import open_pair
from normfuse.parity.sessions import Reference, RuntimeRefusalError, Session
from normfuse.parity.settings import Feed, Settings

OTHER = Settings(provider="azure")
PRODUCT = model("float[B, K] x", "float[B, 4] y", "y = MatMul(x, w)", floats({"w": np.eye(4)}))
needs_another = pytest.mark.skipif(
    "AzureExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="this onnxruntime has no second provider",
)


class Careless:
    """A provider that does not look whether its inputs fit."""

    outputs = ("y",)

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        return {"y": np.zeros(4, np.float32)}


def test_what_does_not_fit_is_refused_before_a_careless_provider_sees_it() -> None:
    guarded = Guarded(Careless(), Session(PRODUCT.SerializeToString(), Settings()))
    assert "y" in guarded.run({"x": np.ones((2, 4), np.float32)})
    with pytest.raises(RuntimeRefusalError):
        guarded.run({"x": np.ones((2, 3), np.float32)})


def test_the_cpu_is_asked_once_for_each_shape() -> None:
    asked: list[tuple[int, ...]] = []

    class Counting(Careless):
        def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
            asked.append(np.shape(feed["x"]))
            return {}

    guarded = Guarded(Careless(), Counting())
    for rows in (2, 2, 5, 2):
        guarded.run({"x": np.ones((rows, 4), np.float32)})
    assert asked == [(2, 4), (5, 4)]


@needs_another
def test_a_node_stands_before_each_input_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[onnx.ModelProto] = []

    class Seen(Session):
        def __init__(self, source: bytes, settings: Settings, **options: Any) -> None:
            opened.append(onnx.ModelProto.FromString(source))
            super().__init__(source, settings, **options)

    monkeypatch.setattr(pieces, "Session", Seen)
    light = LightModel.of(PRODUCT)
    before, _ = open_pair(light, light, OTHER)
    assert [node.op_type for node in opened[0].graph.node] == ["Identity", "MatMul"]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert before.run({"x": x}, ["y"])["y"].tolist() == x.tolist()
    with pytest.raises(RuntimeRefusalError):
        before.run({"x": np.ones((2, 3), np.float32)}, ["y"])


def test_the_cpu_runs_pieces_as_they_are() -> None:
    light = LightModel.of(PRODUCT)
    before, after = open_pair(light, light, Settings())
    assert isinstance(before, Session)
    assert isinstance(after, Session)


def test_what_has_no_kernel_on_either_side_is_evaluated() -> None:
    proto = model("bfloat16[B, 4] x", "bfloat16[B, 4] y", "y = Mul(x, x)")
    before, after = open_pair(LightModel.of(proto), LightModel.of(proto), Settings())
    assert isinstance(before, Reference)
    assert isinstance(after, Reference)


def test_a_replacement_without_a_kernel_is_refused_where_the_original_has_one() -> None:
    kernel = model("bfloat16[B, 4] x", "bfloat16[B, 4] y", "y = Identity(x)")
    none = model("bfloat16[B, 4] x", "bfloat16[B, 4] y", "y = Mul(x, x)")
    with pytest.raises(RuntimeRefusalError):
        open_pair(LightModel.of(kernel), LightModel.of(none), Settings())
