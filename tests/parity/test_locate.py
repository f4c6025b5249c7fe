"""The first tensor that differs between two models, and what is known of why."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from parity_models import floats, model, save, stack

from normfuse.cli import run
from normfuse.parity.locate import Place, locate
from normfuse.parity.settings import Settings

RNG = np.random.default_rng(0)
CONSTANTS = floats({"w": RNG.normal(size=(16, 16)), "g": np.ones(16), "one": 1})
ENDS = "float[B, 16] x", "float[B, 16] y"


def chain(folder: Path, name: str = "a", norm: str = "epsilon=1e-5", **constants: np.ndarray) -> Path:
    """A product, a LayerNorm, a product."""
    body = f"h = MatMul(x, w) n = LayerNormalization<axis=-1, {norm}>(h, g) y = MatMul(n, w)"
    return save(model(*ENDS, body, {**CONSTANTS, **floats(constants)}), folder / f"{name}.onnx")


def test_the_first_difference_is_named_with_what_computes_it(tmp_path: Path) -> None:
    found = locate(*stack(5, broken=3, how="gamma shifted").save(tmp_path), Settings())
    assert found.value == "y3"
    assert (found.before, found.after) == (Place("y3", "Mul"), Place("y3", "SimplifiedLayerNormalization"))
    assert found.agreeing == ("h3",)
    assert (found.compared, found.shared) == (8, 10)
    assert found.figures is not None
    assert found.figures.max_relative > 0.1 > 100 * found.figures.bound


def test_nothing_is_named_where_nothing_differs(tmp_path: Path) -> None:
    found = locate(*stack(3).save(tmp_path), Settings())
    assert (found.value, found.compared, found.shared) == (None, 6, 6)


def test_attributes_that_changed_are_told(tmp_path: Path) -> None:
    found = locate(chain(tmp_path), chain(tmp_path, "b", "epsilon=0.5"), Settings())
    assert (found.value, found.changes) == ("n", ("epsilon 1e-05 became 0.5",))


def test_constants_that_changed_are_told(tmp_path: Path) -> None:
    other = CONSTANTS["w"].copy()
    other[3, 3] += 0.25
    found = locate(chain(tmp_path), chain(tmp_path, "b", w=other), Settings())
    assert (found.value, found.changes) == ("h", ("constant 'w' differs from 'w' by up to 0.25",))


def test_an_attribute_that_is_missing_has_its_default(tmp_path: Path) -> None:
    found = locate(chain(tmp_path, norm="epsilon=0.5"), chain(tmp_path, "b", "stash_type=1"), Settings())
    assert "epsilon 0.5 became default" in found.changes


def test_values_with_other_names_are_not_compared(tmp_path: Path) -> None:
    renamed = "p = MatMul(x, w) n = LayerNormalization<axis=-1>(p, h) y = MatMul(n, w)"
    proto = model(*ENDS, renamed, {**CONSTANTS, "h": 2 * CONSTANTS["g"]})
    found = locate(chain(tmp_path), save(proto, tmp_path / "b.onnx"), Settings())
    assert (found.value, found.shared, found.agreeing) == ("n", 2, ("x",))


def test_rounding_of_a_model_without_float_inputs_is_no_difference(tmp_path: Path) -> None:
    body = "e = Gather(t, x) h = MatMul(e, w) i = MatMul(h, w) j = MatMul(i, w) y = {last}(j, j)"
    table = {**CONSTANTS, **floats({"t": RNG.normal(size=(9, 16))})}
    ends = "int64[B] x", "float[B, 16] y"
    a = save(model(*ends, body.format(last="Add"), table), tmp_path / "a.onnx")
    again = body.replace("MatMul(h, w)", 'Einsum<equation="ij,jk->ik">(h, w)').format(last="Sub")
    found = locate(a, save(model(*ends, again, table), tmp_path / "b.onnx"), Settings())
    assert found.value == "y"


@pytest.mark.parametrize("kept", [1, 1 << 20])
def test_few_values_are_held_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    module = sys.modules["normfuse.parity.locate"]  # the function of that name stands before it
    monkeypatch.setattr(module, "FIRST_BATCH", 2)
    asked: list[int] = []
    figures = module._figures

    def counted(baseline: object, after: object, names: list[str], settings: Settings) -> object:
        asked.append(len(names))
        return figures(baseline, after, names, settings)

    monkeypatch.setattr(module, "_figures", counted)
    models = stack(8, broken=6, how="gamma negated").save(tmp_path)
    found = locate(*models, Settings(record_memory=kept))
    assert found.value == "y6"
    assert asked[:3] == ([2, 2, 2] if kept == 1 else [2, 4, 8])


def test_a_value_that_cannot_be_handed_out_does_not_hide_the_others(tmp_path: Path) -> None:
    body = (
        "s = SequenceConstruct(x, x) z = Constant<value_int=0>() h = SequenceAt(s, z) "
        "n = Mul(h, {by}) y = Add(n, one)"
    )
    a, b = (
        save(model(*ENDS, body.format(by=by), {**CONSTANTS, **floats({"two": 2})}), tmp_path / f"{by}.onnx")
        for by in ("one", "two")
    )
    found = locate(a, b, Settings())
    assert (found.value, found.changes) == ("n", ("constant 'two' differs from 'one' by up to 1",))


# -- through the command line -----------------------------------------------------------------------------


def test_verify_locate_is_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = stack(5, broken=3, how="gamma shifted").save(tmp_path)
    assert run(["verify", str(a), str(b), "--locate"]) == 1
    said = capsys.readouterr().out
    assert "differ from   'y3' on, on cpu" in said
    assert "computed by Mul 'y3' in A, by SimplifiedLayerNormalization 'y3' in B" in said
    assert "number 8 of the 10 tensors that both models compute; up to 'h3' they agree" in said
    assert " ulp" in said


def test_verify_locate_says_nothing_where_the_models_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = stack(2).save(tmp_path)
    assert run(["verify", str(a), str(b), "--locate"]) == 0
    assert "differ from" not in capsys.readouterr().out


def test_verify_locate_without_a_common_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = chain(tmp_path)
    other = onnx.load(chain(tmp_path, "b", "epsilon=0.5"))
    for node in other.graph.node:  # every value but the graph's input goes by another name
        node.input[:] = [name if name in ("x", "w", "g") else f"{name}2" for name in node.input]
        node.output[:] = [f"{name}2" for name in node.output]
    other.graph.output[0].name = "y2"
    assert run(["verify", str(a), str(save(other, tmp_path / "b.onnx")), "--locate"]) == 1
    assert "no computed tensor has the same name in both models" in capsys.readouterr().out


def test_verify_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = stack(3, broken=1, how="gamma negated").save(tmp_path)
    assert run(["verify", str(a), str(b), "--locate", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["a"], data["b"]) == (str(a), str(b))
    assert [v["result"] for v in data["verdicts"]] == ["failed"]
    assert [(found["provider"], found["value"]) for found in data["located"]] == [("cpu", "y1")]
