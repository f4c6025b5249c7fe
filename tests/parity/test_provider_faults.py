"""What a provider or a kernel computes wrongly is told apart from what a rewrite does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from parity_models import Pair, floats, layer_norm, model, stack

from normfuse.parity import blame
from normfuse.parity.baseline import Baseline, baseline_of
from normfuse.parity.check import check
from normfuse.parity.compare import Distance
from normfuse.parity.floor import Floor
from normfuse.parity.inputs import Trial
from normfuse.parity.model import Model
from normfuse.parity.placement import Places, _read
from normfuse.parity.provider_faults import told_apart
from normfuse.parity.sessions import Runner, open_model
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.whole import compare_all, verdict_of

# It leaves everything to the CPU, and yet is not the CPU.
OTHER = Settings(provider="azure")
needs_another = pytest.mark.skipif(
    "AzureExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="this onnxruntime has no second provider",
)


def spoiled(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value + 1 for name, value in values.items()}


class Spoiling:
    """A session on a provider that gets every output wrong."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.outputs = runner, runner.outputs

    def run(self, feed: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, Any]:
        return spoiled(self.runner.run(feed, names))


class Shallow(Floor):
    """The noise of the inputs alone: nudged weights would be run by a session that is not spoiled."""

    def of(self, trial: Trial, deep: bool = False) -> dict[str, Distance]:
        return super().of(trial)


def wrong_there(baseline: Baseline) -> Baseline:
    """The same, on a provider that spoils the original."""
    runner = Spoiling(baseline.runner)
    trials = [replace(t, baseline=runner.run(t.feed)) for t in baseline.trials]
    return replace(baseline, runner=runner, trials=trials, floor=Shallow(baseline.model, runner, OTHER))


def both(folder: Path, how: str = "") -> tuple[Baseline, Model, list[dict[str, Any]]]:
    """A baseline on another provider, a rewritten model, and its results there."""
    before, after = (Model.load(path) for path in stack(2, broken=1, how=how).save(folder))
    baseline = baseline_of(before, OTHER)
    session = open_model(after, OTHER)
    return baseline, after, [session.run(trial.feed) for trial in baseline.trials]


def told(baseline: Baseline, after: Model, results: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    figures = compare_all(baseline.trials, results, baseline.floor)
    judged, notes = told_apart(baseline, after, results, figures, OTHER)
    return verdict_of(judged), notes


@needs_another
def test_a_provider_that_spoils_the_original_is_named_and_the_result_held_against_the_cpu(
    tmp_path: Path,
) -> None:
    baseline, after, results = both(tmp_path)
    wrong = wrong_there(baseline)
    verdict, (note,) = told(wrong, after, results)
    assert verdict == "equal"
    assert note.startswith("the original already gives another 'y1' (off by")
    assert "on AzureExecutionProvider than on the CPU: the provider's doing, not a rewrite's" in note


@needs_another
def test_a_provider_that_spoils_both_alike_is_named(tmp_path: Path) -> None:
    baseline, after, results = both(tmp_path)
    wrong = wrong_there(baseline)
    verdict, notes = told(wrong, after, [spoiled(values) for values in results])
    assert (verdict, len(notes)) == ("equal", 1)


@needs_another
def test_where_the_provider_is_right_about_neither_nothing_is_concluded(tmp_path: Path) -> None:
    baseline, after, results = both(tmp_path)
    wrong = wrong_there(baseline)
    verdict, _ = told(wrong, after, [spoiled(spoiled(values)) for values in results])
    assert verdict == "inconclusive"


@needs_another
def test_a_result_that_only_the_provider_spoils_fails_and_the_provider_is_named(tmp_path: Path) -> None:
    baseline, after, results = both(tmp_path)
    verdict, (note,) = told(baseline, after, [spoiled(values) for values in results])
    assert verdict == "failed"
    assert note == "on the CPU the two agree: it is AzureExecutionProvider that computes the result otherwise"


@needs_another
def test_a_wrong_rewrite_is_not_put_on_the_provider(tmp_path: Path) -> None:
    verdict, notes = told(*both(tmp_path, "gamma shifted"))
    assert (verdict, notes) == ("failed", [])


@needs_another
def test_what_the_provider_does_not_run_the_cpu_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from normfuse.parity import baseline as module
    from normfuse.parity.sessions import RuntimeRefusalError

    opened = module.open_recorder

    def refuse(model: Model, read: Sequence[str], settings: Settings) -> Any:
        if settings.provider != "cpu":
            raise RuntimeRefusalError("dynamic shapes are not supported", "Fail")
        return opened(model, read, settings)

    monkeypatch.setattr(module, "open_recorder", refuse)
    pair = stack(2)
    parity = check(*pair.save(tmp_path), pair.sites, OTHER)
    assert parity.model.result == "equal"
    assert any(
        "AzureExecutionProvider does not run the original" in note
        and "dynamic shapes are not supported" in note
        for note in parity.model.notes
    )


def lossy_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A LayerNormalization that takes E[x²] - E[x]² in float32, as onnxruntime's did before 1.27."""
    from normfuse.parity import pieces
    from normfuse.parity.sessions import Session

    class Lossy(Session):
        def run(self, feed: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, Any]:
            values = super().run(feed, names)
            if self._lossy:
                x = next(iter(feed.values()))
                mean = x.mean(-1, keepdims=True, dtype=np.float32)
                variance = (x * x).mean(-1, keepdims=True, dtype=np.float32) - mean * mean
                with np.errstate(all="ignore"):
                    values = {k: (x - mean) / np.sqrt(variance + np.float32(1e-5)) for k in values}
            return values

        def __init__(self, source: Any, *arguments: Any, **options: Any) -> None:
            super().__init__(source, *arguments, **options)
            self._lossy = b"LayerNormalization" in source

    monkeypatch.setattr(pieces, "Session", Lossy)


def plain_layer_norm(epsilon: float = 1e-5) -> Pair:
    constants = floats({"g": np.ones(16), "b": np.zeros(16)})
    ends = "float[B, 16] x", "float[B, 16] y"
    fused = f"y = LayerNormalization<axis=-1, epsilon={epsilon}>(x, g, b)"
    before = model(*ends, layer_norm("x", "y", 1e-5, "g", "b"), constants)
    return Pair(before, model(*ends, fused, constants), [Boundary("LayerNorm", "x", "y")])


@pytest.mark.parametrize(("version", "cured"), [("1.24.1", True), ("1.32.0", False)])
def test_a_kernel_that_loses_digits_is_named_and_the_rewrite_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, cured: bool
) -> None:
    lossy_kernel(monkeypatch)
    monkeypatch.setattr(blame, "_version", lambda: tuple(int(part) for part in version.split(".")[:2]))
    pair = plain_layer_norm()
    parity = check(*pair.save(tmp_path), pair.sites, Settings())
    assert parity.guilty == ("y",)
    detail = parity.sites["y"].detail
    assert "offset" in detail
    assert "not the rewrite's fault: in float64 it holds" in detail
    assert "onnxruntime's LayerNormalization on CPUExecutionProvider does not" in detail
    assert ("onnxruntime 1.27 and later compute it right" in detail) is cured


def test_a_wrong_epsilon_is_the_rewrites_own_fault(tmp_path: Path) -> None:
    pair = plain_layer_norm(epsilon=1e-4)
    parity = check(*pair.save(tmp_path), pair.sites, Settings())
    assert parity.guilty == ("y",)
    assert "fault" not in parity.sites["y"].detail


def event(name: str, operator: str, provider: str) -> dict[str, Any]:
    return {"cat": "Node", "name": f"{name}_kernel_time", "args": {"op_name": operator, "provider": provider}}


def test_the_nodes_of_a_compiled_subgraph_are_those_that_were_assigned() -> None:
    events = [event("A_OV-subgraph_1_0", "subgraph_1", "A"), event("n", "LayerNormalization", "C")]
    assigned = {"n": ("LayerNormalization", "C"), "m": ("RMSNormalization", "A"), "k": ("Add", "A")}
    places = _read(events, assigned)
    assert places.nodes == {
        "n": ("LayerNormalization", "C"),
        "m": ("RMSNormalization", "A"),
        "k": ("Add", "A"),
    }
    assert not places.compiled


def test_an_older_runtime_does_not_say_what_a_compiled_subgraph_holds() -> None:
    assert _read([event("A_OV-subgraph_1_0", "subgraph_1", "A")], None).compiled
    assert not _read([event("n", "LayerNormalization", "A")], None).compiled
    assert not Places().compiled
