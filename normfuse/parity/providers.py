"""Execution providers: what each is called, how it is had, and what it must be told to compute exactly.

    --ep openvino      --ep OpenVINO      --ep OpenVINOExecutionProvider      one and the same

A provider may be built into the runtime and yet not start (no GPU, no driver, a library missing). The runtime
then goes on with the CPU and says nothing of it; here that is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

from normfuse.errors import CannotVerifyError, UsageError, unknown_value
from normfuse.parity.runtime import first_line, refusals, runtime

SUFFIX = "ExecutionProvider"
CPU = "CPUExecutionProvider"

# By short name: what has to be there before it can start.
INSTALL: Mapping[str, str] = {
    "cpu": "pip install 'normfuse[cpu]'",
    "cuda": "it needs an NVIDIA GPU with its driver, and pip install 'onnxruntime-gpu[cuda,cudnn]'",
    "tensorrt": "it needs an NVIDIA GPU with its driver, and pip install onnxruntime-gpu tensorrt",
    "openvino": "pip install onnxruntime-openvino",
    "dml": "pip install onnxruntime-directml, on Windows",
    "qnn": "pip install onnxruntime-qnn",
    "migraphx": "it needs an AMD GPU with ROCm, and pip install onnxruntime-migraphx",
    "coreml": "onnxruntime has it on macOS alone",
}
APART = "in a virtual environment without any other onnxruntime: they overwrite each other"

# What each must be told so that float32 is computed in float32. By default CUDA rounds the factors of matrix
# products to TF32 (11 bits), and OpenVINO takes bfloat16 where a CPU has instructions for it.
EXACT: Mapping[str, Mapping[str, str]] = {
    "CUDAExecutionProvider": {"use_tf32": "0"},
    "OpenVINOExecutionProvider": {"load_config": json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "f32"}})},
}
# Those that compute half precision in float32 when they are told so, or always.
IN_FLOAT32 = (CPU, "OpenVINOExecutionProvider")


def short_name(provider: str) -> str:
    """ "OpenVINOExecutionProvider" -> "openvino"; UsageError names the closest that exists."""
    name = provider.lower().removesuffix(SUFFIX.lower())
    if name in INSTALL:
        return name
    known = {_short(full) for full in runtime().get_all_providers()} | set(INSTALL)
    if name in known:
        return name
    error = unknown_value("--ep", provider, known)
    here = f"{_version()} offers {_active()}"
    raise UsageError(str(error), hint=f"{error.hint} {here}" if error.hint.endswith("?") else here)


def provider_name(provider: str) -> str:
    """The runtime's own name of a provider ("cuda" is CUDAExecutionProvider).

    Raises CannotVerifyError where the installed runtime is built without it.
    """
    wanted = provider.lower().removesuffix(SUFFIX.lower())
    for full in runtime().get_available_providers():
        if _short(full) == wanted:
            return str(full)
    raise CannotVerifyError(
        f"the execution provider {provider!r} is not active: {_version()} has {_active()}", hint=_cure(wanted)
    )


def require(providers: Iterable[str]) -> None:
    """Raise CannotVerifyError unless each of the providers starts on this machine.

    The CPU always does, and is not tried.
    """
    for provider in providers:
        name = provider_name(provider)
        if name != CPU:
            _start(name)


def chain(name: str) -> list[Any]:
    """A provider as a session takes it: with its options, and the CPU for what it leaves."""
    return [name] if name == CPU else [(name, dict(EXACT.get(name, {}))), CPU]


def check_active(session: Any, name: str) -> None:
    """Raise CannotVerifyError where a session runs without the provider, or not as it was told to."""
    if name not in session.get_providers():
        raise CannotVerifyError(
            f"the execution provider {_short(name)!r} could not be started: {_version()} fell back to cpu",
            hint=_cure(_short(name)),
        )
    taken = session.get_provider_options().get(name, {})
    for key, value in EXACT.get(name, {}).items():
        if key in taken and taken[key] != value:
            raise CannotVerifyError(f"{name} was told {key}={value} and took {taken[key]}")


def register_operators(options: Any, library: Path) -> None:
    """Make a library of custom operators known; CannotVerifyError where it is none."""
    try:
        options.register_custom_ops_library(str(library.resolve()))
    except refusals() as error:
        raise CannotVerifyError(
            f"{library} cannot be loaded as a library of custom operators: {first_line(error)}",
            hint="it must be a shared library with RegisterCustomOps, built for this machine",
        ) from error


def precision_note(name: str) -> str:
    """What is to be known of a provider's precision, or ""."""
    if name == "CUDAExecutionProvider":
        return (
            "TF32 is off for this comparison; CUDAExecutionProvider has it on by default, which rounds the"
            " factors of float32 matrix products to 11 bits: use_tf32=0 turns it off"
        )
    if name in EXACT or name == CPU:
        return ""
    return f"{name} computes in a precision of its own choice, which may be lower than the model's"


def _start(name: str) -> None:
    """Open a session over a single node."""
    value = helper.make_tensor_value_info
    ends = value("x", TensorProto.FLOAT, [1]), value("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [ends[0]], [ends[1]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = runtime().SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime().InferenceSession(
            model.SerializeToString(), options, providers=chain(name), enable_fallback=0
        )
    except refusals() as error:
        raise CannotVerifyError(
            f"the execution provider {_short(name)!r} could not be started: {first_line(error)}",
            hint=_cure(_short(name)),
        ) from error
    check_active(session, name)


def _short(full: str) -> str:
    return full.removesuffix(SUFFIX).lower()


def _active() -> str:
    return ", ".join(map(_short, runtime().get_available_providers()))


def _version() -> str:
    return f"this onnxruntime {runtime().__version__}"


def _cure(short: str) -> str:
    how = INSTALL.get(short, "")
    return f"{how}, {APART}" if "pip install onnxruntime" in how or "'onnxruntime" in how else how
