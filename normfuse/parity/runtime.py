"""onnxruntime itself: loaded when first needed, its errors, and its messages on one line."""

from __future__ import annotations

import importlib
import io
import re
from contextlib import redirect_stdout
from functools import lru_cache
from typing import Any

from normfuse.errors import CannotVerifyError

# Its messages begin with where they come from, and end with what is wrong.
OF_OPENVINO = "[OpenVINO-EP]"
# Letters of a message of the runtime that are shown.
MOST_WORDS = 400


@lru_cache(maxsize=1)
def runtime() -> Any:
    """The onnxruntime module, loaded when first needed."""
    try:
        module = importlib.import_module("onnxruntime")
        module.set_default_logger_severity(4)
    except (ImportError, AttributeError) as error:
        raise CannotVerifyError(
            "onnxruntime is not installed, so the result cannot be checked: pip install 'normfuse[cpu]'"
        ) from error
    if "CUDAExecutionProvider" in module.get_available_providers() and hasattr(module, "preload_dlls"):
        # The CUDA libraries of pip packages are not on the loader's path. What is missing is printed, and
        # found out again when a session starts.
        with redirect_stdout(io.StringIO()):
            module.preload_dlls()
    return module


@lru_cache(maxsize=1)
def refusals() -> tuple[type[Exception], ...]:
    """The error types of onnxruntime, which share no base class; RuntimeError is what its binding raises."""
    runtime()
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    found = [v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*found, RuntimeError, ValueError)


def first_line(error: Exception) -> str:
    """The runtime's message on one line, without its prefix and the place in its source; ended at a word."""
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error)).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    line = lines[-1 if OF_OPENVINO in lines[0] else 0]
    line = re.sub(r"(Status Message: )?/onnxruntime_src/\S+:\d+ [^()]*\([^()]*\) (const )?", "", line)
    return line if len(line) <= MOST_WORDS else f"{line[:MOST_WORDS].rpartition(' ')[0]} …"
