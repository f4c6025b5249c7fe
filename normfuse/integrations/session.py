"""A drop-in for onnxruntime's InferenceSession that runs the fused model.

    session = normfuse.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])

The first session of a model fuses and verifies it, which takes seconds; the result is kept in a cache folder,
so the next one only loads it. Where it cannot be fused, the original runs, with a warning.

    NORMFUSE_CACHE    the folder; else normfuse in the user's cache folder
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from platformdirs import user_cache_path

from normfuse import __version__, api
from normfuse.errors import NormfuseError
from normfuse.options import Options

_SUFFIX = "ExecutionProvider"
_BLOCK = 1 << 20
Provider = str | tuple[str, dict[str, Any]]


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """An onnxruntime.InferenceSession over the fused model.

    path_or_bytes, sess_options, providers, provider_options, **kwargs: as of onnxruntime.
    options: as of `normfuse.optimize`; the providers to verify on are those of the session.
    cache: the folder for fused models.
    fused: the file that runs, or None where the original does.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
        *,
        options: Options | None = None,
        cache: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        given = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(path_or_bytes)
        folder = cache_folder() if cache is None else Path(cache)
        self.fused: Path | None = _fused(given, _with_providers(options or Options(), providers), folder)
        rest = (sess_options, providers, provider_options)
        if self.fused is not None:
            try:
                super().__init__(str(self.fused), *rest, **kwargs)
                return
            except Exception as error:  # onnxruntime raises a class of its own for each failure
                _warn(f"the fused model does not load, so the original runs: {error}")
                self.fused = None
        super().__init__(given if isinstance(given, bytes) else str(given), *rest, **kwargs)


def cache_folder() -> Path:
    """Where fused models are kept."""
    named = os.environ.get("NORMFUSE_CACHE")
    return Path(named) if named else user_cache_path("normfuse", appauthor=False)


def _with_providers(options: Options, providers: Sequence[Provider] | None) -> Options:
    names = [p if isinstance(p, str) else p[0] for p in providers or ["CPUExecutionProvider"]]
    return replace(options, providers=tuple(name.removesuffix(_SUFFIX).lower() for name in names))


def _fused(given: Path | bytes, options: Options, folder: Path) -> Path | None:
    """The fused model, from the cache or made now; None, with a warning, where there is none to be had."""
    try:
        path = folder / f"{_key(given, options)}.onnx"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            _make(given, path, options)
        return path
    except (NormfuseError, OSError) as error:
        _warn(f"not fused, so the original runs: {error}")
        return None


def _make(given: Path | bytes, path: Path, options: Options) -> None:
    result = api.optimize(given, path if isinstance(given, Path) else None, options)
    if isinstance(given, bytes):
        assert isinstance(result.model, bytes)
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_bytes(result.model)
        os.replace(scratch, path)


def _key(given: Path | bytes, options: Options) -> str:
    """What the result depends on: the model, its weights, the options, and the versions that made it.

    External weights may be many gigabytes, so of them it is name, size and time of change.
    """
    digest = hashlib.sha256(repr((options, __version__, onnx.__version__, _runtime_version())).encode())
    if isinstance(given, bytes):
        digest.update(given)
        return digest.hexdigest()
    with open(given, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    model = onnx.load(given, load_external_data=False)
    for name in sorted(_data_files(model)):
        status = (given.resolve().parent / name).stat()
        digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()


def _data_files(model: onnx.ModelProto) -> set[str]:
    return {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _runtime_version() -> str:
    for package in ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"):
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return str(onnxruntime.__version__)


def _warn(message: str) -> None:
    warnings.warn(f"normfuse: {message}", RuntimeWarning, stacklevel=4)
