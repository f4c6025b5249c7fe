"""`--tune` and `--plan`: which lowering each site gets, where that is not left to the target.

rewrite with the k-th lowering of every norm, for each k      -> bench.tune chooses, site by site
the same for residual adds, with the norms as chosen          -> they are measured with the norm behind them
the whole model with the choices against that with the defaults: where it is slower, the defaults stay
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from normfuse import model_io
from normfuse.bench.candidates import RESIDUAL, Variant
from normfuse.bench.choosing import Choice, unmeasured
from normfuse.bench.latency import measure
from normfuse.bench.plan_file import read_plan, write_plan
from normfuse.bench.ratios import Ratio
from normfuse.bench.running import Named
from normfuse.bench.tune import Choices, Tuner
from normfuse.bench.tuning import Tuning
from normfuse.errors import CannotVerifyError, UsageError
from normfuse.options import leaver
from normfuse.parity.baseline import Baseline, baseline_of
from normfuse.parity.check import COPIES_IN_MEMORY
from normfuse.parity.memory import in_words, limit_of
from normfuse.parity.model import Model
from normfuse.parity.runtime import runtime
from normfuse.parity.seeds import pin
from normfuse.parity.settings import Settings
from normfuse.pipeline.lowerings import Lowerings
from normfuse.pipeline.rewrite import rewrite
from normfuse.pipeline.rewritten import Rewritten
from normfuse.pipeline.run import Run, staged_file
from normfuse.targets import Plan

WHOLE_SECONDS = 2.0

Build = Callable[[Plan], tuple[Rewritten, model_io.Staged]]
"""Rewrites the source by a plan, and stages the result."""


def decide(run: Run, source: model_io.Source, out: Path | None) -> None:
    """Set the lowerings of a run: by measuring them, or as a file says.

    Raises UsageError for more than one provider, and for a file that is no plan for the run's target.
    """
    options = run.options
    if options.tune:
        run.progress("tuning")
        with run.timed("tune"):
            found = tune(source, partial(_build, run, source, out), _settings(run), options.threads)
        run.lowerings = Lowerings(found.plan, tuning=found)
    elif options.plan is not None:
        saved = read_plan(options.plan)
        saved.require_target(run.target.name)
        run.lowerings = Lowerings(saved.sites, saved=saved)


def write(run: Run, source: model_io.Source) -> None:
    """Write what tuning chose, where a file was named for it."""
    found = run.lowerings.tuning
    if found is not None and run.options.plan is not None:
        write_plan(run.options.plan, found, source.name, run.target.name)


def _settings(run: Run) -> Settings:
    providers = run.options.providers
    if len(providers) > 1:
        raise UsageError(
            f"tuning is for one execution provider, and there are {len(providers)}: {', '.join(providers)}",
            hint="tune for each of them, with one --ep",
        )
    return run.settings(providers[0])


def _build(
    run: Run, source: model_io.Source, out: Path | None, plan: Plan
) -> tuple[Rewritten, model_io.Staged]:
    with model_io.no_collection():
        done = rewrite(source.again().model, run.target, leaver(run.options.skip, ()), plan)
        return done, staged_file(done, source, out, run.options)


@dataclass(frozen=True, eq=False)
class _Built:
    done: Rewritten
    path: Path
    variant: Variant


def tune(source: model_io.Source, build: Build, settings: Settings, threads: int) -> Tuning:
    """Choose the lowerings of a model by measuring them on the provider of `settings`.

    Raises CannotVerifyError where the original does not run, or would take too much memory.
    """
    with ExitStack() as stack:
        original = stack.enter_context(model_io.original(source))

        def built(plan: Plan) -> _Built:
            done, staged = build(plan)
            stack.enter_context(staged)
            variant = Variant(Model.load(staged.path), {b.output: b for b in done.boundaries})
            return _Built(done, staged.path, variant)

        model, _ = pin(Model.load(original))
        _check_memory(model, settings)
        baseline = baseline_of(model, settings)
        default = built({})
        tuner = Tuner(baseline, settings, threads)
        choices = list(_norms(tuner, default, built))
        chosen = _plan(choices)
        with_norms = built(chosen) if _changes(choices) else default
        choices += _residuals(tuner, with_norms, built, chosen)
        found = _tuning(baseline, settings, threads, choices)
        if not _changes(choices):
            return found
        whole = built(_plan(choices))
        return _as_a_whole(found, default, whole.path, settings, threads)


def _check_memory(model: Model, settings: Settings) -> None:
    needed, limit = COPIES_IN_MEMORY * model.weight_bytes, limit_of(settings)
    if needed > limit:
        raise CannotVerifyError(
            f"tuning runs the model, which would take about {in_words(needed)}, above the limit of"
            f" {in_words(limit)}",
            hint="raise the limit with --max-memory, or leave --tune out",
        )


def _norms(tuner: Tuner, default: _Built, built: Callable[[Plan], _Built]) -> Sequence[Choice]:
    residuals = _residual_outputs(default.done)
    ways = {site: names for site, names in default.done.choices.items() if site not in residuals}
    return _choices(tuner, default, built, ways, {})


def _residuals(
    tuner: Tuner, default: _Built, built: Callable[[Plan], _Built], norms: Plan
) -> Sequence[Choice]:
    residuals = _residual_outputs(default.done)
    ways = {site: names for site, names in default.done.choices.items() if site in residuals}
    return _choices(tuner, default, built, ways, norms)


def _choices(
    tuner: Tuner, default: _Built, built: Callable[[Plan], _Built], ways: Choices, plan: Plan
) -> Sequence[Choice]:
    """Build a variant for each place in the order of the candidates, and choose."""
    most = max(map(len, ways.values()), default=0)
    others = [built({**plan, **_places(ways, k)}) for k in range(1, most)]
    return tuner.choices([default.variant, *(other.variant for other in others)], ways)


def _places(ways: Choices, k: int) -> dict[str, str]:
    return {site: names[min(k, len(names) - 1)] for site, names in ways.items()}


def _residual_outputs(done: Rewritten) -> set[str]:
    return {site.output for site in done.sites if site.kind == RESIDUAL}


def _plan(choices: Iterable[Choice]) -> Mapping[str, str]:
    return {choice.site: choice.lowering for choice in choices}


def _changes(choices: Iterable[Choice]) -> bool:
    return any(not choice.is_default for choice in choices)


def _tuning(baseline: Baseline, settings: Settings, threads: int, choices: Sequence[Choice]) -> Tuning:
    sizes = dict(baseline.trials[0].sizes)
    return Tuning(
        provider=settings.provider,
        runtime=str(runtime().__version__),
        threads=threads,
        sizes=sizes,
        chosen=tuple(name for name in sizes if name not in settings.dims),
        choices=tuple(choices),
    )


def _as_a_whole(found: Tuning, default: _Built, tuned: Path, settings: Settings, threads: int) -> Tuning:
    """The choices, if the whole model is not slower with them."""
    named = [Named("the defaults", default.path), Named("the choices", tuned)]
    try:
        whole = measure(named, settings, threads=threads, seconds=WHOLE_SECONDS)
    except CannotVerifyError as error:
        return _by_default(found, default, None, f"could not be compared: {error}")
    _, other = whole.models
    if other.standing == "slower":
        return _by_default(found, default, other.ratio, "is slower with the choices")
    return replace(found, whole=other.ratio)


def _by_default(found: Tuning, default: _Built, whole: Ratio | None, why: str) -> Tuning:
    """The defaults in the place of all choices; those that other choices had done away with are back."""
    measured = {choice.site: choice for choice in found.choices}
    choices = []
    for site, names in default.done.choices.items():
        choice = measured.get(site) or unmeasured(site, names, "other choices had done away with it")
        choices.append(replace(choice, lowering=names[0]))
    note = f"the defaults stay, for the whole model {why}"
    return replace(found, choices=tuple(choices), whole=whole, note=note)
