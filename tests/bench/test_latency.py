"""Models side by side: what is compared, on which inputs, and what cannot be."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from small_models import model

import normfuse
from normfuse.bench.benchmark import BETWEEN, Benchmark, Latency, OperatorTime
from normfuse.bench.latency import standing
from normfuse.bench.ratios import Ratio
from normfuse.cli import run
from normfuse.errors import CannotVerifyError, UsageError
from normfuse.options import Options

ADDED = model("y = Add(x, x)", x="float[S,4]")
SQUARED = model("a = Mul(x, x) y = Add(a, x)", x="float[S,4]")


def saved(folder: Path, **models: onnx.ModelProto) -> list[str]:
    paths = []
    for name, proto in models.items():
        paths.append(str(folder / f"{name}.onnx"))
        onnx.save(proto, paths[-1])
    return paths


def test_every_model_is_compared_with_the_first_and_the_first_with_itself() -> None:
    (found,) = normfuse.benchmark([ADDED, SQUARED, ADDED], seconds=0)
    assert [each.standing == "first" for each in found.models] == [True, False, False]
    assert [each.ratio is None for each in found.models] == [True, False, False]
    assert found.control.low <= found.control.median <= found.control.high
    assert all(each.q1 <= each.median <= each.q3 for each in found.models)


def test_one_model_alone_has_a_latency_and_a_control() -> None:
    (found,) = normfuse.benchmark([ADDED], seconds=0)
    assert len(found.models) == 1
    assert found.rounds >= 7
    assert found.models[0].median > 0


def test_the_conditions_are_stated() -> None:
    (found,) = normfuse.benchmark([ADDED], Options(dims={"S": 5}), threads=2, seconds=0)
    assert (found.provider, found.threads) == ("cpu", 2)
    assert found.inputs == ({"x": (5, 4)},)
    assert (found.sizes, found.chosen) == ({"S": 5}, ())


def test_a_size_that_nobody_gave_is_named() -> None:
    (found,) = normfuse.benchmark([ADDED], seconds=0)
    assert found.chosen == ("S",)


def test_every_set_of_the_users_inputs_is_fed(tmp_path: Path) -> None:
    for i, rows in enumerate((2, 9)):
        np.savez(tmp_path / f"{i}.npz", x=np.ones((rows, 4), np.float32))
    (found,) = normfuse.benchmark([ADDED], Options(inputs=tmp_path), seconds=0)
    assert found.inputs == ({"x": (2, 4)}, {"x": (9, 4)})


def test_the_profile_names_the_operators_of_each_model() -> None:
    (found,) = normfuse.benchmark([ADDED, SQUARED], seconds=0, profile=True)
    operators = [{each.operator: each.nodes for each in m.operators} for m in found.models]
    assert operators == [{"Add": 1, BETWEEN: 0}, {"Add": 1, "Mul": 1, BETWEEN: 0}]
    assert found.models[0].profiled == pytest.approx(sum(o.seconds for o in found.models[0].operators))


def test_bfloat16_and_text_are_fed_too() -> None:
    brain = model("y = Cast<to=1>(x)", x="bfloat16[4]", outputs="float[4] y")
    text = model("y = Identity(x)", x="string[4]")
    for each in (brain, text):
        (found,) = normfuse.benchmark([each], seconds=0)
        assert found.models[0].median > 0


def test_models_of_different_inputs_do_not_run_side_by_side() -> None:
    with pytest.raises(UsageError, match=r"has an input 'b' that .* does not have"):
        normfuse.benchmark([ADDED, model("y = Add(x, b)", x="float[S,4]", b="float[4]")], seconds=0)
    with pytest.raises(UsageError, match=r"input 'x' is tensor\(float\) in .* and tensor\(double\) in"):
        normfuse.benchmark([ADDED, model("y = Add(x, x)", x="double[S,4]")], seconds=0)


def test_a_model_that_takes_other_shapes_is_named(tmp_path: Path) -> None:
    a, b = saved(tmp_path, a=ADDED, b=model("y = Add(x, x)", x="float[S,7]"))
    with pytest.raises(CannotVerifyError, match=r"b\.onnx: does not run on the inputs of the first model"):
        normfuse.benchmark([a, b], seconds=0)


def test_a_model_that_the_runtime_does_not_load_is_named(tmp_path: Path) -> None:
    foreign = helper.make_graph([helper.make_node("Nothing", ["x"], ["y"], domain="nobody")], "g",
                                ADDED.graph.input, ADDED.graph.output)  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nobody", 1)]
    a, b = saved(tmp_path, a=ADDED, b=helper.make_model(foreign, opset_imports=opsets, ir_version=8))
    with pytest.raises(CannotVerifyError, match=r"b\.onnx: does not load in this onnxruntime"):
        normfuse.benchmark([a, b], seconds=0)


def test_a_provider_that_is_not_there_is_an_error() -> None:
    with pytest.raises(CannotVerifyError, match="'openvino' is not active"):
        normfuse.benchmark([ADDED], Options(providers=("openvino",)), seconds=0)


QUIET = Ratio(1.0, 0.999, 1.001, 0.999, 1.001)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (None, "first"),
        (Ratio(1.2, 1.1, 1.3, 1.1, 1.3), "faster"),
        (Ratio(0.8, 0.7, 0.9, 0.7, 0.9), "slower"),
        (Ratio(1.002, 0.998, 1.004, 1, 1), "same"),
    ],
)
def test_the_standing_follows_the_interval(ratio: Ratio | None, expected: str) -> None:
    assert standing(ratio, QUIET) == expected


def test_the_page_on_measuring_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    names = [field.name for kind in (Benchmark, Latency, OperatorTime, Ratio) for field in fields(kind)]
    assert [name for name in names if f"`{name}`" not in page] == []


# -- the command ----------------------------------------------------------------------------------------


def test_the_command_prints_the_conditions_and_a_row_for_each_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = saved(tmp_path, a=ADDED, b=SQUARED)
    assert run(["bench", a, b, "--dim", "S=6", "--seconds", "0", "--profile"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("cpu, 1 thread, ORT_ENABLE_ALL, onnxruntime ")
    assert "x [6, 4]" in printed
    assert "chosen here" not in printed
    assert [line.split()[0] for line in printed.splitlines() if line.startswith(f"  {tmp_path}")] == [a, b]
    assert "itself again" in printed
    assert any(line.split()[:1] == ["Mul"] for line in printed.splitlines())


def test_sizes_that_were_chosen_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (a,) = saved(tmp_path, a=ADDED)
    assert run(["bench", a, "--seconds", "0", "--threads", "0"]) == 0
    printed = capsys.readouterr().out
    assert "as many threads as onnxruntime chooses" in printed
    assert "S=2 chosen here" in printed


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = saved(tmp_path, a=ADDED, b=SQUARED)
    assert run(["bench", a, b, "--seconds", "0", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    assert [each["model"] for each in found["models"]] == [a, b]
    assert found["models"][1]["ratio"]["median"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bench"], 2, "Missing argument"),
        (["bench", "nowhere.onnx"], 3, "nowhere.onnx: no such file"),
        (["bench", "-", "-"], 2, "only one of the models can come from standard input"),
        (["bench", "a.onnx", "--ep", "cdua"], 2, "did you mean 'cuda'?"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    assert message in capsys.readouterr().err
