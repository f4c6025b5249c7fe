"""The original as a baseline: opened at ORT_DISABLE_ALL, with inputs that it accepts and its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx

from normfuse.errors import CannotVerifyError
from normfuse.parity import caveats
from normfuse.parity.floor import Floor
from normfuse.parity.inputs import Trial, trials
from normfuse.parity.model import Model
from normfuse.parity.sessions import Reference, Runner, RuntimeRefusalError, open_model
from normfuse.parity.settings import Settings
from normfuse.parity.whole import flat, unstable_outputs

# The reference evaluator runs node by node in Python: only for small models.
MOST_REFERENCE_NODES = 3000
# A nudge of one ulp that moves an output by so much may be no nudge at all but another draw.
SUSPICIOUS = 1e-2


@dataclass(frozen=True, eq=False)
class Baseline:
    """The original, the inputs it accepts and what it makes of them.

    unstable: outputs that differ between two runs on the same inputs.
    """

    model: Model
    runner: Runner
    trials: Sequence[Trial]
    floor: Floor
    unstable: tuple[str, ...]
    notes: tuple[str, ...]


def baseline_of(model: Model, settings: Settings) -> Baseline:
    """Open the original, make inputs that it accepts, and see whether it repeats itself."""
    runner, notes = _open(model, settings)
    found, chosen = trials(model, runner, settings)
    found = [replace(trial, baseline=flat(trial.baseline)) for trial in found]
    floor = Floor(model, runner, settings)
    unstable = _unstable(runner, found[0], floor)
    notes = [*caveats.before(model, settings), *notes, *chosen]
    if unstable:
        notes.append(f"two runs of the original differ in {', '.join(unstable)}: nothing can be said of them")
    return Baseline(model, runner, found, floor, unstable, tuple(notes))


def _unstable(runner: Runner, trial: Trial, floor: Floor) -> tuple[str, ...]:
    """Outputs that differ between two runs; a long second run is made only where the noise asks for it."""
    if trial.heavy and all(noise.relative < SUSPICIOUS for noise in floor.of(trial).values()):
        return ()
    return unstable_outputs(runner, trial)


def open_like(baseline: Baseline, model: Model, settings: Settings) -> Runner:
    """The result, by the same means as the original; raises RuntimeRefusalError."""
    try:
        return open_model(model, settings)
    except RuntimeRefusalError as error:
        if isinstance(baseline.runner, Reference) and error.kind == "NotImplemented":
            return _reference(model, str(error))
        raise


def _open(model: Model, settings: Settings) -> tuple[Runner, list[str]]:
    foreign = caveats.custom_operators(model)
    try:
        return open_model(model, settings), []
    except RuntimeRefusalError as error:
        if foreign and settings.custom_operators is None:
            listed = ", ".join(foreign)
            raise CannotVerifyError(
                f"the model has custom operators ({listed}); name their library with --custom-op-library"
            ) from error
        if error.kind != "NotImplemented" or len(model.proto.graph.node) > MOST_REFERENCE_NODES:
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
