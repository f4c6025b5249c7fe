"""One rewrite of twenty is broken: parity finds it, that one is taken back, and the nineteen others stay.

Where the target has another way to say the broken one, that is taken.

Every way to rewrite is broken in several ways, each alone, in one model, through the whole pipeline.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from broken_rewrites import FAULTS, epsilon_10
from faults import Fault
from twenty_sites import BY_TARGET, twenty_sites

import normfuse
from normfuse.cli import run
from normfuse.report import Report

CHANGED = ("fused", "folded", "guarded")
# One of each way to rewrite, for the quick suite; all of them, each alone, take minutes.
QUICK = ("layer: epsilon x10", "conv: scale one channel off")


@pytest.fixture(scope="module")
def source() -> onnx.ModelProto:
    return twenty_sites()


def statuses(report: Report) -> dict[str, str]:
    """The status of every site that was to be rewritten."""
    return {site.output: site.status for site in report.sites if site.status != "left"}


def test_every_target_rewrites_twenty_sites(source: onnx.ModelProto) -> None:
    for target, names in BY_TARGET.items():
        report = normfuse.optimize(source, options=normfuse.Options(target=target)).report
        assert len(set(names)) == 20
        assert set(statuses(report)) == set(names)
        assert set(statuses(report).values()) <= set(CHANGED)
        assert report.parity is not None
        assert report.parity.result == "equal"


def marked(fault: Fault) -> object:
    quick = str(fault) in QUICK and fault.target == "ort-cpu"
    return pytest.param(fault, id=str(fault), marks=() if quick else (pytest.mark.slow,))


@pytest.mark.parametrize("fault", [marked(fault) for fault in FAULTS])
def test_the_broken_rewrite_is_taken_back_and_no_other(
    fault: Fault, source: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault.plant(monkeypatch, fault.site)
    report = normfuse.optimize(source, options=normfuse.Options(target=fault.target)).report
    found = statuses(report)
    assert set(found) >= set(BY_TARGET[fault.target])
    lost = [] if fault.then else [fault.site]
    assert [name for name, status in found.items() if status == "rolled-back"] == lost
    guilty = next(site for site in report.sites if site.output == fault.site)
    assert guilty.parity is not None
    assert guilty.parity.result == ("equal" if fault.then else "failed")
    assert not fault.then or (guilty.lowering == fault.then and "failed" in guilty.detail)
    assert report.parity is not None
    assert report.parity.result == "equal"


def test_a_residual_needs_no_guard_once_its_norm_is_taken_back(
    source: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    epsilon_10(monkeypatch, "layer_behind")
    found = statuses(normfuse.optimize(source).report)
    assert set(BY_TARGET["ort-cpu"]) - set(found) == {"residual"}
    assert [name for name, status in found.items() if status == "rolled-back"] == ["layer_behind"]


def test_every_fault_at_once_is_taken_back(source: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in each of the twenty: what a part of a broken fold still allows is done, and is right."""
    planted = {fault.site: fault for fault in FAULTS if fault.target == "ort-cpu"}
    assert set(BY_TARGET["ort-cpu"]) - set(planted) == {"layer_behind"}
    for site, fault in planted.items():
        fault.plant(monkeypatch, site)
    found = statuses(normfuse.optimize(source).report)
    lost = {site for site, fault in planted.items() if not fault.then}
    assert {name for name, status in found.items() if status == "rolled-back"} == lost
    assert {name for name, status in found.items() if status != "rolled-back"} == {
        "layer_behind", "product_scaled", "conv_bias_scaled", "channels_first"
    }  # fmt: skip


@pytest.mark.parametrize("strict", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_exit_code_is_0_and_with_strict_1(
    strict: bool, source: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    epsilon_10(monkeypatch, "layer")
    path = tmp_path / "m.onnx"
    onnx.save(source, path)
    code = run([str(path), "-o", str(tmp_path / "out.onnx"), *(["--strict"] if strict else [])])
    assert code == (1 if strict else 0)
    assert "rolled-back" in capsys.readouterr().out
    assert (tmp_path / "out.onnx").exists()
