"""Reads the user's own inputs: a .npz, a .npy, or a folder of either or of ONNX test data sets.

one.npz                      a run; arrays by input name
one.npy                      a run of a model with a single input
folder/*.npz                 a run each
folder/test_data_set_0/input_0.pb, input_1.pb, …     a run each, inputs in order
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from normfuse.errors import UsageError
from normfuse.parity.settings import Array


def read_inputs(path: Path, names: Sequence[str]) -> list[dict[str, Array]]:
    """The runs that lie at `path`, for a model with the given input names."""
    if path.is_dir():
        found = _folder(path, names)
    elif path.suffix in (".npz", ".npy"):
        found = [_arrays(path, names)]
    else:
        raise UsageError(f"--inputs {path}: expected a .npz, a .npy, or a folder of test data sets")
    if not found:
        raise UsageError(f"--inputs {path}: holds no .npz, no .npy and no test_data_set_* folder")
    for feed in found:
        _check(path, feed, names)
    return found


def _folder(path: Path, names: Sequence[str]) -> list[dict[str, Array]]:
    if list(path.glob("input_*.pb")):
        return [_data_set(path, names)]
    sets = sorted(folder for folder in path.iterdir() if folder.is_dir() and list(folder.glob("input_*.pb")))
    if sets:
        return [_data_set(folder, names) for folder in sets]
    files = sorted(file for file in path.iterdir() if file.suffix in (".npz", ".npy"))
    return [_arrays(file, names) for file in files]


def _arrays(file: Path, names: Sequence[str]) -> dict[str, Array]:
    try:
        loaded = np.load(file, allow_pickle=False)
        if file.suffix == ".npz":
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise UsageError(f"--inputs {file}: cannot be read ({error})") from error
    if len(names) != 1:
        raise UsageError(
            f"--inputs {file}: the model has {len(names)} inputs, so a .npz with their names is needed"
        )
    return {names[0]: np.asarray(loaded)}


def _data_set(folder: Path, names: Sequence[str]) -> dict[str, Array]:
    feed: dict[str, Array] = {}
    for i, name in enumerate(names):
        file = folder / f"input_{i}.pb"
        if not file.exists():
            raise UsageError(f"--inputs {folder}: there is no input_{i}.pb for input {name!r}")
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(file.read_bytes())
            feed[tensor.name if tensor.name in names else name] = np.asarray(numpy_helper.to_array(tensor))
        except (OSError, DecodeError, ValueError) as error:
            raise UsageError(f"--inputs {file}: cannot be read as a tensor ({error})") from error
    return feed


def _check(path: Path, feed: dict[str, Array], names: Sequence[str]) -> None:
    missing, extra = set(names) - set(feed), set(feed) - set(names)
    if missing:
        raise UsageError(f"--inputs {path}: there is no array for input {min(missing)!r}")
    if extra:
        raise UsageError(
            f"--inputs {path}: {min(extra)!r} is no input of the model (it has: {', '.join(names)})"
        )
