"""Reading models: external weights, light copies, constants and scopes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from parity_models import floats, model, save

from normfuse.errors import InputError
from normfuse.parity.model import Model
from normfuse.parity.sessions import open_variant
from normfuse.parity.settings import Settings

W = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
ENDS = "float[B, 40] x", "float[B, 40] y"


def outside(folder: Path) -> Path:
    path = folder / "m.onnx"
    proto = model(*ENDS, "y = MatMul(x, w)", {"w": W})
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def test_external_weights_are_read_on_demand(tmp_path: Path) -> None:
    which = Model.load(outside(tmp_path))
    (tensor,) = which.proto.graph.initializer
    assert not tensor.raw_data
    assert (which.array(tensor) == W).all()
    assert which.weight_bytes == W.nbytes


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "missing.bin"])
def test_weights_outside_the_folder_are_not_read(tmp_path: Path, location: str) -> None:
    which = Model.load(outside(tmp_path))
    (tensor,) = which.proto.graph.initializer
    tensor.external_data[0].value = location
    with pytest.raises(InputError, match="'w'"):
        which.array(tensor)


def test_a_file_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    which = Model.load(outside(tmp_path))
    (tmp_path / "w.bin").write_bytes(b"short")
    with pytest.raises(InputError, match="ends before"):
        which.array(which.proto.graph.initializer[0])


def test_what_is_no_model_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x99\x99 nothing")
    with pytest.raises(InputError, match="cannot be read"):
        Model.load(tmp_path / "m.onnx")


def test_variants_share_the_weights(tmp_path: Path) -> None:
    which = Model.load(save(model(*ENDS, "y = MatMul(x, w)", {"w": W}), tmp_path / "m.onnx"))
    assert set(which.light.weights) == {"w"}
    assert which.light.proto.ByteSize() < 1000
    x = np.ones((1, 40), np.float32)
    plain = open_variant(which, which.light.copy(), Settings()).run({"x": x})["y"]
    double = open_variant(which, which.light.copy(), Settings(), weights={"w": W * 2}).run({"x": x})["y"]
    assert np.allclose(double, 2 * plain)
    assert np.allclose(plain, x @ W, atol=1e-5)


def test_constants_are_found_through_nodes_and_bodies() -> None:
    body = "a = Constant<value_ints=[1, 2]>() b = Cast<to=1>(a) y = Mul(x, b)"
    which = Model(Path("m"), model("float[B, 2] x", "float[B, 2] y", body, floats({"w": np.ones(2)})))
    assert {"a", "b", "w"} <= which.main.constant
    assert "y" not in which.main.constant
    tensor = which.constant("a")
    assert tensor is not None
    assert which.array(tensor).tolist() == [1, 2]
    assert which.constant("b") is None


def test_a_weight_that_nothing_reads_is_no_obstacle(tmp_path: Path) -> None:
    """The runtime drops it when it opens a model, and would not take its values then."""
    unread = {"w": W, "unread": np.ones((64, 64), np.float32)}
    proto = model(*ENDS, "y = MatMul(x, w)", unread)
    found = Model.load(save(proto, tmp_path / "m.onnx"))
    assert set(found.light.weights) == {"w"}
    x = np.ones((1, 40), np.float32)
    assert np.allclose(
        open_variant(found, found.light.copy(), Settings()).run({"x": x})["y"], x @ W, atol=1e-5
    )
