"""Inputs of the user: .npz, .npy, folders, and ONNX test data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from normfuse.errors import UsageError
from normfuse.parity.given import read_inputs

A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(2, np.int64)


def test_an_npz_is_one_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", a=A, b=B)
    (feed,) = read_inputs(tmp_path / "one.npz", ["a", "b"])
    assert (feed["a"] == A).all()
    assert feed["b"].dtype == np.int64


def test_an_npy_is_for_a_single_input(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", A)
    assert (read_inputs(tmp_path / "a.npy", ["x"])[0]["x"] == A).all()
    with pytest.raises(UsageError, match="has 2 inputs"):
        read_inputs(tmp_path / "a.npy", ["x", "y"])


def test_a_folder_of_npz_is_a_run_each(tmp_path: Path) -> None:
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", a=A + i)
    assert [feed["a"][0, 0] for feed in read_inputs(tmp_path, ["a"])] == [0, 1, 2]


@pytest.mark.parametrize("names", [("a", "b"), ("", "")])
def test_a_folder_of_test_data_sets(tmp_path: Path, names: tuple[str, str]) -> None:
    for i in range(2):
        folder = tmp_path / f"test_data_set_{i}"
        folder.mkdir()
        for k, (name, value) in enumerate(zip(names, (A + i, B), strict=True)):
            tensor = onnx.numpy_helper.from_array(value, name)
            (folder / f"input_{k}.pb").write_bytes(tensor.SerializeToString())
    feeds = read_inputs(tmp_path, ["a", "b"])
    assert [feed["a"][0, 0] for feed in feeds] == [0, 1]
    assert len(read_inputs(tmp_path / "test_data_set_1", ["a", "b"])) == 1


def test_names_must_be_those_of_the_model(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", a=A, c=B)
    with pytest.raises(UsageError, match="no array for input 'b'"):
        read_inputs(tmp_path / "one.npz", ["a", "b", "c"])
    with pytest.raises(UsageError, match="'c' is no input"):
        read_inputs(tmp_path / "one.npz", ["a"])


@pytest.mark.parametrize("name", ["x.txt", "missing.npz", "broken.npz", "empty"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="--inputs"):
        read_inputs(tmp_path / name, ["a"])


def test_half_an_archive_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", a=A)
    whole = (tmp_path / "one.npz").read_bytes()
    (tmp_path / "one.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="cannot be read"):
        read_inputs(tmp_path / "one.npz", ["a"])
