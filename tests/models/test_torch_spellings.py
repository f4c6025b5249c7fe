"""What exporters write: 98 of 100 normalizations in it end as asked, the rest is named, none is wrong.

`torch_spellings` holds the modules. Both tables of it are read without torch, which takes seconds to import.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from torch_spellings import exceptions
from torch_spellings.table import SPELLINGS, ways

QUICK = (
    ("ln", "fp32-ts13"),
    ("ln_man_var_mean", "fp32-dyd18"),
    ("rms_llama", "fp32-ts~16"),
    ("gn", "fp32-ts17"),
    ("l2_div_norm", "fp16-ts13"),
    ("linear_nobias_bn1d", "fp32-tsp13"),
)


@pytest.fixture
def outcome_of(tmp_path: Path) -> Callable[[str, str], object]:
    """outcome_of(module, way): what comes of that export."""
    from torch_spellings.outcome import outcome

    def get(module: str, way: str) -> object:
        spelling = SPELLINGS[module]
        return outcome(spelling, next(w for w in ways(spelling) if w.name == way), tmp_path / "out.onnx")

    return get


@pytest.mark.parametrize(("module", "way"), QUICK)
def test_an_export_ends_as_asked(module, way, outcome_of) -> None:
    result = outcome_of(module, way)

    assert result.verdict == "as-asked", result


@pytest.mark.parametrize("parameter", ["norm.weight", "norm.bias"])
def test_the_comparison_notices_a_parameter_that_is_forgotten(parameter: str, tmp_path: Path) -> None:
    from torch_spellings.comparing import compare
    from torch_spellings.exporting import export

    spelling, changed = SPELLINGS["ln"], tmp_path / "changed.onnx"
    way = next(w for w in ways(spelling) if w.name == "fp32-ts13")
    model = onnx.load(export(spelling, way))
    tensor = next(each for each in model.graph.initializer if each.name == parameter)
    tensor.raw_data = np.full(tuple(tensor.dims), float(parameter == "norm.weight"), np.float32).tobytes()
    onnx.save(model, changed)

    assert compare(spelling, way, export(spelling, way), export(spelling, way)) == ""
    assert compare(spelling, way, export(spelling, way), changed).startswith("error")


@pytest.mark.slow
@pytest.mark.parametrize("module", SPELLINGS)
def test_every_export_of_a_module_ends_as_asked_or_is_named(module, outcome_of) -> None:
    results = {way.name: outcome_of(module, way.name) for way in ways(SPELLINGS[module])}

    def having(verdict: str) -> dict[str, str]:
        return {way: result.why for way, result in results.items() if result.verdict == verdict}

    assert having("wrong") == {}
    assert having("missed") == {}
    assert having("refused") == exceptions.of(module, exceptions.REFUSED)
    assert having("no-export") == exceptions.of(module, exceptions.NOT_EXPORTED)


def test_at_least_98_of_100_promised_exports_are_not_among_the_exceptions() -> None:
    promised = [s for s in SPELLINGS.values() if s.promised]
    total = sum(len(list(ways(spelling))) for spelling in promised)

    named = [m for m, _, _ in exceptions.each(exceptions.REFUSED) if SPELLINGS[m].promised]

    assert len(named) <= 0.02 * total


def test_the_exceptions_are_exports_that_exist() -> None:
    known = {(name, way.name) for name, spelling in SPELLINGS.items() for way in ways(spelling)}

    for table in (exceptions.REFUSED, exceptions.NOT_EXPORTED):
        assert {(module, way) for module, way, _ in exceptions.each(table)} <= known


def test_the_corpus_keeps_its_size() -> None:
    assert len(SPELLINGS) == 73
    assert sum(len(list(ways(spelling))) for spelling in SPELLINGS.values()) == 1527
