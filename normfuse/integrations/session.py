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
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from platformdirs import user_cache_path

from normfuse import __version__, api
from normfuse.errors import NormfuseError
from normfuse.model_io.data import all_tensors
from normfuse.model_io.read import parsed
from normfuse.options import Options
from normfuse.parity.runtime import refusals
from normfuse.versions import RUNTIMES, installed

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
            except refusals() as error:
                _warn(f"the fused model does not load, so the original runs: {error}")
                self.fused = None
        super().__init__(given if isinstance(given, bytes) else str(given), *rest, **kwargs)


def cache_folder() -> Path:
    """Where fused models are kept."""
    named = os.environ.get("NORMFUSE_CACHE")
    return Path(named) if named else user_cache_path("normfuse", appauthor=False)


def _with_providers(options: Options, providers: Sequence[Provider] | None) -> Options:
    names = [p if isinstance(p, str) else p[0] for p in providers or ["CPUExecutionProvider"]]
    return replace(options, providers=tuple(names))


def _fused(given: Path | bytes, options: Options, folder: Path) -> Path | None:
    """The fused model, from the cache or made now; None, with a warning, where there is none to be had."""
    try:
        path = folder / f"{_key(given, options)}.onnx"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            api.optimize(given, path, options)
        return path
    except (NormfuseError, OSError) as error:
        _warn(f"not fused, so the original runs: {error}")
        return None


def _key(given: Path | bytes, options: Options) -> str:
    """What the result depends on: the model, its weights, the options, and the versions that made it.

    External weights may be many gigabytes, so of them it is name, size and time of change.
    """
    versions = (__version__, onnx.__version__, installed(RUNTIMES))
    digest = hashlib.sha256(repr((options, versions)).encode())
    content = given if isinstance(given, bytes) else given.read_bytes()
    digest.update(content)
    if isinstance(given, Path):
        tensors = all_tensors(parsed(content, str(given)))
        locations = {e.value for t in tensors for e in t.external_data if e.key == "location"}
        for name in sorted(locations):
            status = (given.resolve().parent / name).stat()
            digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()


def _warn(message: str) -> None:
    warnings.warn(f"normfuse: {message}", RuntimeWarning, stacklevel=4)
