"""Tuning a model: what is measured, what follows from it, and how a plan repeats it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import jsonschema
import ml_dtypes
import numpy as np
import onnx
import pytest
from small_models import f32, model, operators, vector

import normfuse
from normfuse.bench import latency
from normfuse.bench.benchmark import Benchmark
from normfuse.bench.candidates import Spot, Variant, spot
from normfuse.bench.choosing import Choice, Measure
from normfuse.bench.ratios import Ratio
from normfuse.bench.tune import Tuner, measure_briefly
from normfuse.bench.turns import Run
from normfuse.cli import run
from normfuse.cli.parse import with_lowerings
from normfuse.errors import CannotVerifyError, UsageError
from normfuse.options import Options
from normfuse.parity.baseline import baseline_of
from normfuse.parity.model import Model
from normfuse.parity.settings import Boundary, Settings
from normfuse.pipeline import tuning
from normfuse.report import Report, schema
from normfuse.report.json_report import to_json

WIDTH = 8
CONSTANTS = {
    **{"p": f32(2), "e": f32(1e-5)},
    **{f"g{k}": vector(WIDTH, seed=k) for k in range(3)},
    **{f"b{k}": vector(WIDTH, seed=10 + k) for k in range(3)},
}


def layer_norm(k: int, x: str, y: str) -> str:
    """The text of a LayerNorm in pieces, its values named by k."""
    return (
        f"m{k} = ReduceMean<axes=[-1]>({x}) d{k} = Sub({x}, m{k}) s{k} = Pow(d{k}, p)"
        f" v{k} = ReduceMean<axes=[-1]>(s{k}) a{k} = Add(v{k}, e) r{k} = Sqrt(a{k}) n{k} = Div(d{k}, r{k})"
        f" k{k} = Mul(n{k}, g{k}) {y} = Add(k{k}, b{k}) "
    )


def network(*, shapes: str = "4,8") -> onnx.ModelProto:
    """Two equal LayerNorms, and one behind a residual add."""
    body = layer_norm(0, "x", "h0") + "t = Tanh(h0) " + layer_norm(1, "t", "h1")
    body += "q = Relu(h1) z = Add(q, t) " + layer_norm(2, "z", "y")
    return model(body, CONSTANTS, x=f"float[{shapes}]")


class Bench:
    """Stands for what measures: seconds by place among the contenders, the default and its control first."""

    def __init__(self, *others: float) -> None:
        self.others = others
        self.calls = 0

    def __call__(self, runs: Sequence[Run]) -> list[list[float]]:
        self.calls += 1
        for once in runs:
            once()
        seconds = (1.0, 1.0, *self.others)
        return [[seconds[k]] * 20 for k in range(len(runs))]


Tune = Callable[..., Report]


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> Tune:
    """Tunes a model with made-up times: of the candidates of a site, and of the whole model."""

    def tune(proto: onnx.ModelProto | str, bench: Bench, whole: str = "faster", **options: object) -> Report:
        real = latency.measure

        def measured(*args: object, **kwargs: object) -> Benchmark:
            found = real(*args, **{**kwargs, "seconds": 0})  # type: ignore[arg-type]
            ratio = {"faster": 1.2, "slower": 0.8, "same": 1.0}[whole]
            other = replace(found.models[1], standing=whole, ratio=Ratio(*[ratio] * 5))  # type: ignore[arg-type]
            return replace(found, models=(found.models[0], other))

        monkeypatch.setattr(tuning, "measure", measured)
        monkeypatch.setattr(tuning, "Tuner", partial(Tuner, measure=bench))
        # The verification has tests of its own, and would take most of the time here.
        options = {"verify": False, **options}
        return normfuse.optimize(proto, options=Options(tune=True, **options)).report  # type: ignore[arg-type]

    return tune


def lowerings(report: Report) -> dict[str, str]:
    assert report.tuning is not None
    return report.tuning.plan


# -- the choice -----------------------------------------------------------------------------------------


def test_where_nothing_is_faster_every_default_stays(tuned: Tune) -> None:
    report = tuned(network(), Bench(2.0, 2.0))
    assert lowerings(report) == {"h0": "layer-norm", "h1": "layer-norm", "y": "layer-norm", "z": "sum"}
    assert report.tuning is not None
    assert report.tuning.whole is None
    assert report.count("fused") == 3


def test_a_site_that_is_faster_as_it_was_spelled_stays_so(tuned: Tune) -> None:
    report = tuned(network(), Bench(0.5, 0.5))
    assert {lowerings(report)[y] for y in ("h0", "h1", "y")} == {"as-spelled"}
    assert report.count("fused") == 0


def test_equal_sites_are_measured_once(tuned: Tune) -> None:
    bench = Bench(2.0, 2.0)
    tuned(network(), bench)
    assert bench.calls == 2  # the LayerNorms are alike; and the residual add


def test_sites_of_other_shapes_are_measured_apart(tuned: Tune) -> None:
    body = layer_norm(0, "x", "h") + "f = Reshape(h, f2) " + layer_norm(1, "f", "y")
    constants = {**CONSTANTS, "f2": np.array([2, 2, WIDTH])}
    proto = model(body, constants, x="float[4,8]", outputs="float[2,2,8] y")
    bench = Bench(2.0)
    report = tuned(proto, bench)
    assert len(lowerings(report)) == bench.calls == 2


def test_the_candidates_and_their_ratios_are_in_the_report(tuned: Tune) -> None:
    report = tuned(network(), Bench(2.0))
    assert report.tuning is not None
    first = report.tuning.choices[0]
    assert [c.lowering for c in first.candidates] == ["layer-norm", "as-spelled"]
    assert first.candidates[0].ratio is None
    assert first.candidates[1].ratio == Ratio(*[0.5] * 5)
    assert report.seconds["tune"] >= 0
    jsonschema.validate(json.loads(to_json(report.to_dict())), schema())


def test_the_defaults_stay_where_the_whole_model_is_slower(tuned: Tune) -> None:
    report = tuned(network(), Bench(0.5), whole="slower")
    assert set(lowerings(report).values()) == {"layer-norm", "sum"}
    assert report.tuning is not None
    assert "slower" in report.tuning.note
    assert report.count("fused") == 3


def test_the_sizes_that_it_was_measured_at_are_stated(tuned: Tune) -> None:
    report = tuned(network(shapes="S,8"), Bench(2.0), dims={"S": 3})
    assert report.tuning is not None
    assert (report.tuning.sizes, report.tuning.chosen) == ({"S": 3}, ())
    assert tuned(network(shapes="S,8"), Bench(2.0)).tuning.chosen == ("S",)  # type: ignore[union-attr]


def test_a_model_without_a_choice_is_tuned_too(tuned: Tune) -> None:
    bench = Bench()
    report = tuned(model("y = Relu(x)", x="float[2,2]"), bench)
    assert (lowerings(report), bench.calls) == ({}, 0)


def test_what_is_skipped_is_not_measured(tuned: Tune) -> None:
    report = tuned(network(), Bench(2.0), skip=("h0", "Residual"))
    assert set(lowerings(report)) == {"h1", "y"}


def test_tuning_is_for_one_provider() -> None:
    with pytest.raises(UsageError, match="tuning is for one execution provider"):
        normfuse.optimize(network(), options=Options(tune=True, providers=("cpu", "azure"), verify=False))


def test_a_site_in_a_body_keeps_its_default_and_says_why(tuned: Tune) -> None:
    inner = f"then_body () => (float[4,8] yt) {{ {layer_norm(0, 'x', 'yt')} }}"
    other = "else_body () => (float[4,8] ye) { ye = Identity(x) }"
    body = f"y = If (c) <then_branch = {inner}, else_branch = {other}>"
    report = tuned(model(body, CONSTANTS, x="float[4,8]", c="bool", outputs="float[4,8] y"), Bench(0.5))
    assert report.tuning is not None
    (choice,) = report.tuning.choices
    assert (choice.lowering, choice.note) == ("layer-norm", "it stands in the body of an If, Loop or Scan")


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_sites_of_every_type_that_the_runtime_runs_are_measured(dtype: str, tuned: Tune) -> None:
    kind = {"float16": np.float16, "double": np.float64}[dtype]
    constants = {name: value.astype(kind) for name, value in CONSTANTS.items()}
    report = tuned(model(layer_norm(0, "x", "y"), constants, x=f"{dtype}[4,8]"), Bench(0.5))
    assert report.tuning is not None
    assert [c.note for c in report.tuning.choices[0].candidates] == ["", ""]


def test_a_model_that_the_runtime_does_not_run_is_not_tuned() -> None:
    constants = {name: value.astype(ml_dtypes.bfloat16) for name, value in CONSTANTS.items()}
    proto = model(layer_norm(0, "x", "y"), constants, x="bfloat16[4,8]")
    with pytest.raises(CannotVerifyError, match="there is nothing to tune"):
        normfuse.optimize(proto, options=Options(tune=True))


def test_a_model_that_is_too_large_to_run_is_not_tuned() -> None:
    with pytest.raises(CannotVerifyError, match="tuning runs the model, which would take about"):
        normfuse.optimize(network(), options=Options(tune=True, max_memory=100))


# -- what is cut out ------------------------------------------------------------------------------------


def spots(proto: onnx.ModelProto, tmp_path: Path, boundary: Boundary) -> Spot | str:
    onnx.save(proto, tmp_path / "m.onnx")
    loaded = Model.load(tmp_path / "m.onnx")
    return spot(
        loaded, [Variant(loaded, {boundary.output: boundary})], boundary.output, ("sum", "as-spelled")
    )


RESIDUAL = Boundary("Residual", "x", "s", inputs=("x", "r"))
SKIPS = "s = Add(x, r) y = LayerNormalization(s, g0)"


def test_a_residual_add_is_measured_with_the_norm_that_reads_it(tmp_path: Path) -> None:
    proto = model(SKIPS, {"g0": vector(WIDTH)}, x="float[4,8]", r="float[4,8]")
    found = spots(proto, tmp_path, RESIDUAL)
    assert isinstance(found, Spot)
    assert [n.op_type for n in found.usable[0].after.nodes] == ["Add", "LayerNormalization"]
    assert found.also is None


@pytest.mark.parametrize(
    ("more", "outputs"), [("", "float[4,8] y, float[4,8] s"), ("z = Relu(s)", "float[4,8] y, float[4,8] z")]
)
def test_a_sum_that_is_used_elsewhere_has_to_be_kept(more: str, outputs: str, tmp_path: Path) -> None:
    proto = model(f"{SKIPS} {more}", {"g0": vector(WIDTH)}, x="float[4,8]", r="float[4,8]", outputs=outputs)
    found = spots(proto, tmp_path, RESIDUAL)
    assert isinstance(found, Spot)
    assert found.also == "s"


def test_what_cannot_be_cut_out_keeps_its_default_and_says_why(tmp_path: Path) -> None:
    proto = model("s = Add(x, r) y = Relu(s)", x="float[4,8]", r="float[4,8]")
    assert spots(proto, tmp_path, RESIDUAL) == "no norm reads it"


def test_a_candidate_that_computes_something_else_is_not_taken(tmp_path: Path) -> None:
    right = model("y = LayerNormalization(x, g0)", {"g0": vector(WIDTH)}, x="float[4,8]")
    wrong = model("y = LayerNormalization<epsilon=0.1>(x, g0)", {"g0": vector(WIDTH)}, x="float[4,8]")
    found = _choice(tmp_path, right, wrong, Bench(0.5))
    assert found.is_default
    assert found.candidates[1].note.startswith("failed")


def _choice(
    tmp_path: Path, default: onnx.ModelProto, other: onnx.ModelProto, measure: Measure = measure_briefly
) -> Choice:
    """The choice between two ways to compute y from x."""
    loaded = []
    for name, proto in (("a", default), ("b", other)):
        onnx.save(proto, tmp_path / f"{name}.onnx")
        loaded.append(Model.load(tmp_path / f"{name}.onnx"))
    baseline = baseline_of(loaded[0], Settings())
    variants = [Variant(each, {"y": Boundary("LayerNorm", "x", "y")}) for each in loaded]
    tuner = Tuner(baseline, Settings(), measure=measure)
    (found,) = tuner.choices(variants, {"y": ("default", "other")})
    return found


# -- plans ----------------------------------------------------------------------------------------------


def saved(tmp_path: Path, proto: onnx.ModelProto | None = None) -> Path:
    onnx.save(proto or network(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_plan_repeats_the_build_byte_for_byte(tuned: Tune, tmp_path: Path) -> None:
    plan, path = tmp_path / "plan.json", saved(tmp_path)
    report = tuned(str(path), Bench(0.5), plan=plan)
    first = (tmp_path / "m.fused.onnx").read_bytes()
    assert json.loads(plan.read_text())["sites"] == lowerings(report)
    result = normfuse.optimize(path, tmp_path / "again.onnx", Options(plan=plan))
    assert (tmp_path / "again.onnx").read_bytes() == first
    assert result.report.tuning is None
    assert operators(onnx.load(tmp_path / "again.onnx"))["ReduceMean"] == 6


def test_a_plan_says_what_it_was_made_for(tuned: Tune, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    tuned(str(saved(tmp_path)), Bench(2.0), plan=plan)
    data = json.loads(plan.read_text())
    assert (data["schema_version"], data["model"], data["target"]) == (1, "m.onnx", "ort-cpu")
    assert (data["provider"], data["threads"]) == ("cpu", 1)


PLAN = {"schema_version": 1, "model": "other.onnx", "target": "ort-cpu", "sites": {"h0": "as-spelled"}}


def test_a_site_that_a_plan_does_not_name_gets_the_default(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    report = normfuse.optimize(network(), options=Options(plan=tmp_path / "plan.json")).report
    assert {s.output for s in report.sites if s.status == "fused"} == {"h1", "y"}


def test_inspect_says_what_a_plan_would_do(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    report = normfuse.inspect(network(), Options(plan=tmp_path / "plan.json"))
    assert {s.output for s in report.sites if s.status == "fused"} == {"h1", "y"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sites": {"h9": "layer-norm", "h0": "as-spelled"}}, "made for other.onnx; .* has no site 'h9'"),
        ({"sites": dict.fromkeys("abcde", "sum")}, "has no site 'a', 'b', 'c' and 2 more"),
        ({"sites": {"h0": "group-norm"}}, "'group-norm' for 'h0', which cannot be said so"),
        ({"target": "onnx"}, "made for target 'onnx', and this build is for 'ort-cpu'"),
        ({"schema_version": 2}, "a plan of version 2, and this normfuse reads 1"),
        ({"sites": ["h0"]}, "not a plan"),
        ({"sites": {"h0": 3}}, "not a plan"),
        ({"model": None}, "not a plan"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({**PLAN, **changes}))
    with pytest.raises(UsageError, match=message):
        normfuse.optimize(saved(tmp_path), options=Options(plan=tmp_path / "plan.json"))
    assert not (tmp_path / "m.fused.onnx").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1}'])
def test_what_is_no_plan_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UsageError, match=r"plan.json: not a plan"):
        normfuse.optimize(network(), options=Options(plan=tmp_path / "plan.json"))


def test_a_plan_that_is_not_there_or_cannot_be_written_is_an_error(tuned: Tune, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the plan"):
        normfuse.optimize(network(), options=Options(plan=tmp_path / "none.json"))
    with pytest.raises(UsageError, match="cannot write the plan"):
        tuned(network(), Bench(2.0), plan=tmp_path / "no" / "plan.json")


# -- the command ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m.onnx", "--threads", "2"], "--threads is for --tune"),
        (["a.onnx", "b.onnx", "--plan", "plan.json"], "a plan is for one model"),
        (["m.onnx", "--tune", "--check"], "--tune measures, so it does not go with --check"),
        (["a.onnx", "b.onnx", "--tune", "--jobs", "2"], "--tune measures, so it does not go with --jobs"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert message in capsys.readouterr().err


def test_the_options_of_tuning_reach_the_api() -> None:
    plan = Path("plan.json")
    assert with_lowerings(Options(), True, plan, 4, several=False) == Options(tune=True, plan=plan, threads=4)
    assert with_lowerings(Options(), False, None, None, several=True) == Options()


# -- once for real --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lowering_that_is_three_times_slower_is_told_from_a_faster_one(tmp_path: Path) -> None:
    constants = {"g0": vector(512), "two": vector(512) * 0 + 2, "half": vector(512) * 0 + 0.5}
    detour = "".join(
        f"i{k} = Mul({f'o{k - 1}' if k else 'x'}, two) o{k} = Mul(i{k}, half) " for k in range(3)
    )
    fast = model("y = LayerNormalization(x, g0)", constants, x="float[256,512]")
    slow = model(f"{detour} y = LayerNormalization(o2, g0)", constants, x="float[256,512]")
    # On a busy machine the spread may be so wide that the default stays: then it is tried again.
    taken = next(c for _ in range(5) if not (c := _choice(tmp_path, slow, fast)).is_default)
    assert taken.candidates[1].ratio is not None
    assert taken.candidates[1].ratio.median > 2
    assert _choice(tmp_path, fast, slow).is_default
