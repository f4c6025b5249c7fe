"""The original as a baseline: opened at ORT_DISABLE_ALL, with inputs that it accepts and its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import onnx

from normfuse.errors import CannotVerifyError
from normfuse.parity import caveats
from normfuse.parity.floor import Floor
from normfuse.parity.guarded import Guarded
from normfuse.parity.inputs import Trial, trials
from normfuse.parity.model import Model
from normfuse.parity.providers import CPU, provider_name
from normfuse.parity.recorder import Recorder, open_recorder
from normfuse.parity.sessions import (
    NO_KERNEL,
    Reference,
    Runner,
    RuntimeRefusalError,
    open_model,
    open_variant,
)
from normfuse.parity.settings import Settings, on_cpu
from normfuse.parity.whole import flat, unstable_outputs

# The reference evaluator runs node by node in Python: only for small models.
MOST_REFERENCE_NODES = 3000
# A nudge of one ulp that moves an output by so much may be no nudge at all but another draw.
SUSPICIOUS = 1e-2
# Seconds of a plain run above which a session less is opened.
COSTLY = 0.2


@dataclass(frozen=True, eq=False)
class Baseline:
    """The original, the inputs it accepts and what it makes of them.

    opening: seconds that opening it took.
    refused: what the provider says where it does not run the original; then the CPU has run it.
    """

    model: Model
    runner: Runner
    trials: Sequence[Trial]
    floor: Floor
    notes: tuple[str, ...]
    opening: float = 0.0
    refused: str = ""

    @cached_property
    def unstable(self) -> tuple[str, ...]:
        """Outputs that differ between two runs on the same inputs; asked for only where a result differs.

        A long second run is made only where the noise asks for it, and on the inputs that it takes least for.
        """
        trial = self.trials[0]
        if trial.heavy:
            if all(noise.relative < SUSPICIOUS for noise in self.floor.of(trial).values()):
                return ()
            trial = min(self.trials, key=lambda t: t.seconds)
        return unstable_outputs(self.runner, trial)

    @property
    def costly(self) -> bool:
        """Whether each run, or each session that is opened, must be worth what it takes."""
        return self.trials[0].heavy or self.plain_run > COSTLY

    @property
    def plain_run(self) -> float:
        """Seconds of one plain run: opening the model, and running it on the largest inputs."""
        return self.opening + self.trials[0].seconds


def baseline_of(model: Model, settings: Settings, read: Sequence[str] = ()) -> Baseline:
    """Open the original and make inputs that it accepts; `read` are values to record in its runs.

    What another provider than the CPU refuses, the CPU runs.
    """
    name = provider_name(settings.provider)
    try:
        return _baseline(model, settings, read)
    except CannotVerifyError as error:
        if name == CPU:
            raise
        found = _baseline(model, on_cpu(settings), read)
        note = f"{name} does not run the original ({error}), so the CPU has: the provider's doing"
        return replace(found, refused=str(error), notes=(note, *found.notes))


def _baseline(model: Model, settings: Settings, read: Sequence[str]) -> Baseline:
    runner, notes = _open(model, settings, read)
    found, chosen = trials(model, _guarded(model, runner, settings), settings)
    found = [replace(trial, baseline=flat(trial.baseline)) for trial in found]
    recorder = runner if isinstance(runner, Recorder) else Recorder(model, runner)
    floor = Floor(model, runner, settings, overridable=recorder.tables)
    notes = [*caveats.before(model, settings), *notes, *chosen]
    return Baseline(model, runner, found, floor, tuple(notes), recorder.seconds)


def _guarded(model: Model, runner: Runner, settings: Settings) -> Runner:
    """What inputs are tried on: another provider than the CPU may take sizes that do not fit."""
    if provider_name(settings.provider) == CPU:
        return runner
    try:
        return Guarded(runner, open_model(model, on_cpu(settings)))
    except RuntimeRefusalError:
        return runner


def open_like(baseline: Baseline, model: Model, settings: Settings) -> Runner:
    """The result, by the same means as the original; raises RuntimeRefusalError."""
    try:
        return open_variant(model, model.light.proto, settings)
    except RuntimeRefusalError as error:
        if isinstance(baseline.runner, Reference) and error.kind == NO_KERNEL:
            return _reference(model, str(error))
        raise


def _open(model: Model, settings: Settings, read: Sequence[str]) -> tuple[Runner, list[str]]:
    foreign = caveats.custom_operators(model)
    try:
        return open_recorder(model, read, settings), []
    except RuntimeRefusalError as error:
        if foreign and settings.custom_operators is None:
            listed = ", ".join(foreign)
            raise CannotVerifyError(
                f"the model has custom operators that onnxruntime does not know ({listed})",
                hint="name their library with --custom-op-library FILE, or write the result with --no-verify",
            ) from error
        if error.kind != NO_KERNEL or len(model.proto.graph.node) > MOST_REFERENCE_NODES:
            raise CannotVerifyError(f"the original does not load in this onnxruntime: {error}") from error
        note = f"run by ONNX's reference evaluator, for onnxruntime says: {error}"
        return _reference(model, str(error)), [note]


def _reference(model: Model, said: str) -> Runner:
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(model.tensor(tensor))
    try:
        return Reference(proto)
    except RuntimeRefusalError as error:
        raise CannotVerifyError(
            f"neither onnxruntime ({said}) nor ONNX's reference evaluator ({error}) runs the model"
        ) from error
