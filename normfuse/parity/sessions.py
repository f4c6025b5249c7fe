"""Runs models: onnxruntime sessions at a chosen level and provider, or ONNX's reference evaluator.

The baseline level is ORT_DISABLE_ALL: at its default level the runtime rewrites graphs itself, and
not always rightly. A provider that was asked for and is not active is an error, never a fall-back.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import ml_dtypes
import numpy as np
import onnx

from normfuse.parity.model import Model, serialize
from normfuse.parity.providers import chain, check_active, provider_name, register_operators
from normfuse.parity.reference import REFUSALS, CannotEvaluateError, evaluator
from normfuse.parity.runtime import first_line, refusals, runtime
from normfuse.parity.settings import Array, Feed, Settings

Level = Literal["off", "deployed"]
# A model given as bytes finds its external weights by this entry.
FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"
# What the runtime's error is called where it has no kernel for an operator and a type.
NO_KERNEL = "NotImplemented"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class RuntimeRefusalError(Exception):
    """The runtime would not load or run a model; the text is the runtime's own first line."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Runner(Protocol):
    """Anything that computes named outputs from named inputs."""

    outputs: tuple[str, ...]

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The values of the outputs; raises RuntimeRefusalError where the inputs are not accepted."""


class Session:
    """One onnxruntime session.

    model: a file, or bytes with the folder of their external weights; disabled: optimizers to leave out;
    overrides: other values for some initializers; weights: those that a LightModel has beside it;
    profile: prefix of a profile's file name; write: where to put the graph that the runtime makes of the
    model; threads: 0 for the runtime's own choice;
    entries: further entries of the session's configuration.
    """

    def __init__(
        self,
        model: bytes | Path,
        settings: Settings,
        level: Level = "off",
        *,
        folder: Path | None = None,
        disabled: Sequence[str] = (),
        overrides: Mapping[str, Array] | None = None,
        weights: Mapping[str, Array] | None = None,
        profile: str | None = None,
        write: Path | None = None,
        threads: int = 0,
        entries: Mapping[str, str] | None = None,
    ) -> None:
        name = provider_name(settings.provider)
        options = _options(settings, level, threads)
        for key, text in (entries or {}).items():
            options.add_session_config_entry(key, text)
        if profile is not None:
            options.enable_profiling, options.profile_file_prefix = True, profile
        if write is not None:
            options.optimized_model_filepath = str(write)
        if folder is not None:
            options.add_session_config_entry(FOLDER_OF_WEIGHTS, str(folder))
        # The session reads the overriding values in place: they must live as long as it does.
        self._kept = {k: value_of(v) for k, v in (overrides or {}).items()}
        for key, value in self._kept.items():
            options.add_initializer(key, value)
        self._weights = {k: value_of(v) for k, v in (weights or {}).items()}
        if self._weights:
            options.add_external_initializers(list(self._weights), list(self._weights.values()))
        source = str(model) if isinstance(model, Path) else model
        try:
            self.session = runtime().InferenceSession(
                source,
                options,
                providers=chain(name),
                disabled_optimizers=list(disabled) or None,
                enable_fallback=0,  # else it says on standard output that it goes on with the CPU
            )
        except refusals() as error:
            raise RuntimeRefusalError(first_line(error), type(error).__name__) from error
        check_active(self.session, name)
        self.outputs = tuple(o.name for o in self.session.get_outputs())
        self._types = {v.name: v.type for v in (*self.session.get_inputs(), *self.session.get_outputs())}

    def shapes(self) -> dict[str, list[int | str | None]]:
        """The shapes that the runtime inferred for the outputs."""
        return {o.name: list(o.shape or []) for o in self.session.get_outputs()}

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Run once."""
        wanted = list(names if names is not None else self.outputs)
        if not wanted:
            return {}  # an empty list means "all outputs" to the runtime
        brain = "tensor(bfloat16)" in (self._types.get(n) for n in (*feed, *wanted))
        try:
            values = self._run_brain(feed, wanted) if brain else self.session.run(wanted, dict(feed))
        except refusals() as error:
            raise RuntimeRefusalError(first_line(error), type(error).__name__) from error
        return dict(zip(wanted, values, strict=True))

    def end_profile(self) -> str:
        """Ends profiling and hands back the path of the profile."""
        return str(self.session.end_profiling())

    def _run_brain(self, feed: Feed, wanted: list[str]) -> list[Array]:
        """bfloat16 has no numpy type in the runtime's binding: it goes in and out as 16-bit words."""
        # The values lie in the arrays, which must not be freed before the run.
        arrays = {k: np.ascontiguousarray(v) for k, v in feed.items()}
        values = {k: value_of(v) for k, v in arrays.items()}
        return [_to_numpy(value) for value in self.session.run_with_ort_values(wanted, values)]


def _options(settings: Settings, level: Level, threads: int) -> Any:
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_DISABLE_ALL if level == "off" else levels.ORT_ENABLE_ALL
    if level == "off":
        # Few runs a session: packing the weights first would take longer than it saves.
        options.add_session_config_entry("session.disable_prepacking", "1")
        # Between runs there is much to do in Python, where threads that wait actively only take time.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if settings.custom_operators is not None:
        register_operators(options, settings.custom_operators)
    return options


def value_of(array: Array) -> Any:
    """An array as the runtime holds it: not a copy, and kept alive by the value."""
    values = runtime().OrtValue
    if array.dtype == BFLOAT16:
        return values.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)
    return values.ortvalue_from_numpy(array)


def _to_numpy(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    count = int(np.prod(shape))
    if count == 0:
        return np.zeros(shape, BFLOAT16)
    words = np.frombuffer(ctypes.string_at(value.data_ptr(), 2 * count), np.uint16)
    return np.asarray(words.view(BFLOAT16).reshape(shape))


class Reference:
    """ONNX's reference evaluator, for what the runtime has no kernel for (bfloat16 on CPU)."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        try:
            self._evaluator = evaluator(proto)
        except CannotEvaluateError as error:
            raise RuntimeRefusalError(first_line(error), NO_KERNEL) from error
        self.outputs = tuple(o.name for o in proto.graph.output)

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Run once, in the model's own data types."""
        wanted = list(names if names is not None else self.outputs)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return dict(zip(wanted, self._evaluator.run(wanted, dict(feed)), strict=True))
        except REFUSALS as error:
            raise RuntimeRefusalError(first_line(error), type(error).__name__) from error


class Fresh:
    """A new session for every run, so that seeded random operators draw the same numbers each time."""

    def __init__(self, source: bytes | Path, settings: Settings, level: Level, **options: Any) -> None:
        self._open = partial(Session, source, settings, level, **options)
        self._first: Session | None = self._open()
        self.outputs = self._first.outputs

    def run(self, feed: Feed, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Run once, in a session of its own."""
        session, self._first = self._first or self._open(), None
        return session.run(feed, names)

    def shapes(self) -> dict[str, list[int | str | None]]:
        """The shapes that the runtime inferred for the outputs."""
        return (self._first or self._open()).shapes()

    def end_profile(self) -> str:
        """A new session for every run cannot be profiled as a whole."""
        raise RuntimeRefusalError("models with random operators are not profiled", NO_KERNEL)


def open_model(model: Model, settings: Settings, level: Level = "off", **options: Any) -> Session | Fresh:
    """A session over the file as it lies on disk, or over its copy with seeded random operators."""
    if model.edited:
        return open_variant(model, model.light.proto, settings, level, **options)
    return Session(model.path, settings, level, **options)


def open_variant(
    model: Model, proto: onnx.ModelProto, settings: Settings, level: Level = "off", **options: Any
) -> Session | Fresh:
    """A session over a changed copy of `model.light.proto`, with the model's own weights or those given."""
    kind = Fresh if model.edited else Session
    options = {"folder": model.path.parent, "weights": model.light.weights, **options}
    return kind(serialize(proto), settings, level, **options)


def open_with_outputs(
    model: Model, settings: Settings, extra: Sequence[str], overridable: Iterable[str] = ()
) -> Session | Fresh:
    """The model with more of its values as outputs; at ORT_DISABLE_ALL this changes nothing else.

    overridable: initializers that a run may give another value.
    """
    known = set(model.outputs)
    wanted = [name for name in dict.fromkeys(extra) if name not in known]
    inputs = {i.name for i in model.proto.graph.input}
    given = [model.main.initializers[name] for name in sorted(set(overridable) - inputs)]
    if not wanted and not given:
        return open_model(model, settings)
    proto = model.light.copy()
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    proto.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in given
    )
    return open_variant(model, proto, settings)
