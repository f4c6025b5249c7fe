"""The report for people: everything they need is there, in order, and nothing that plays tricks."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from report_samples import EMPTY, FULL, LOGITS, NOT_VERIFIED, POOLED, VERDICT
from rich.console import Console

from normfuse.norms.refusal import REASONS
from normfuse.parity.verdict import ModelVerdict
from normfuse.report.advice import ADVICE
from normfuse.report.comparison import print_verdict, worst_output
from normfuse.report.inspection import print_inspection
from normfuse.report.live import Live
from normfuse.report.printing import console
from normfuse.report.record import Report, Site
from normfuse.report.summary import print_summary


def printed(function: Callable[..., None], what: object, *, terminal: bool = False, width: int = 200) -> str:
    out = Console(
        file=io.StringIO(), force_terminal=terminal, width=width, markup=False, emoji=False, highlight=False
    )
    function(what, out)
    return out.file.getvalue()


def test_a_summary_tells_it_all() -> None:
    text = printed(print_summary, FULL)
    for words in (
        "model.onnx",
        "target ort-cpu, opset 13 → 17, 512 → 214 nodes",
        "2 fused, 1 rolled-back",
        "→ LayerNormalization",
        "1 folded",
        "1 guarded",
        "2 RMSNorm  eps-outside-sqrt",
        REASONS["eps-outside-sqrt"],
        "rms1, rms2",
        "verified      on cpu, 2 inputs; worst: 'logits', off by 3.1e-07 relative",
        "a note",
        "1 site closer to the exact result",
        "model.fused.onnx, 4.1 MB (was 4.2 MB)",
        "weights in model.onnx.data",
        "--target onnx avoids",
        "read 10 ms, verify 1.2 s",
    ):
        assert words in text, words


def test_warnings_come_before_what_was_found() -> None:
    text = printed(print_summary, FULL)
    assert text.index("warning: a BatchNormalization is in training mode") < text.index("LayerNorm ")


def test_a_model_without_norms_is_said_to_be_a_copy() -> None:
    text = printed(print_summary, EMPTY)
    assert "nothing found" in text
    assert "it is a copy" in text
    assert "left as they are" not in text


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (NOT_VERIFIED, "not verified  nothing proves"),
        (replace(FULL, parity=ModelVerdict("not-run", "cpu", detail="too large")), "not verified  too large"),
        (replace(FULL, parity=ModelVerdict("failed", "cpu", detail="NaN")), "differs       on cpu; NaN"),
        (replace(FULL, parity=ModelVerdict("inconclusive", "cpu")), "inconclusive  on cpu"),
        (replace(FULL, written=None), "not written   no file was changed"),
    ],
)
def test_a_summary_says_what_is_missing(report: Report, words: str) -> None:
    assert words in printed(print_summary, report)


def test_equal_outputs_are_said_to_be() -> None:
    same = replace(LOGITS, max_absolute=0, max_relative=0)
    text = printed(print_summary, replace(FULL, parity=replace(VERDICT, outputs=(same,))))
    assert "every output the same bit for bit" in text


def test_an_inspection_lists_every_candidate_with_reason_and_advice() -> None:
    text = printed(print_inspection, FULL)
    for site in FULL.sites:
        assert site.anchor in text
    for words in (
        "would be fused → LayerNormalization",
        "left: eps-outside-sqrt",
        "epsilon 1e-6 stands behind the root",
        "outside it: affine-not-constant",
        REASONS["affine-not-constant"],
        ADVICE["rolled-back"],
        "2 would be fused, 1 would be folded, 1 would be guarded, 2 left",
    ):
        assert words in text, words


def test_a_comparison_has_a_row_for_each_output() -> None:
    wrong = replace(LOGITS, agrees=False, max_relative=0.5, detail="from index 3 on")
    vague = replace(POOLED, conclusive=False)
    text = printed(print_verdict, replace(VERDICT, result="failed", outputs=(wrong, vague)))
    assert "differs: from index 3 on" in text
    assert "says nothing" in text
    assert "differ        on cpu, 2 inputs; worst: 'logits', off by 5.0e-01 relative" in text


def test_the_worst_output_is_the_one_nearest_to_its_bound() -> None:
    near = replace(LOGITS, name="near", max_relative=1e-6, bound=2e-6)
    far = replace(LOGITS, name="far", max_relative=1e-3, bound=1.0)
    lost = replace(LOGITS, name="lost", max_relative=float("nan"), agrees=False)
    assert worst_output(replace(VERDICT, outputs=(far, near))) == near
    assert worst_output(replace(VERDICT, outputs=(near, lost, far))) == lost
    assert worst_output(replace(VERDICT, outputs=())) is None


@pytest.mark.parametrize("function", [print_summary, print_inspection])
def test_names_cannot_play_tricks(function: Callable[..., None]) -> None:
    evil = "a\x1b[31mb\nc\u202e[bold]d"
    site = Site(evil, "left", evil, "y", spelling=evil, reason="eps-outside-sqrt", detail=evil)
    text = printed(function, replace(FULL, model=evil, sites=(site,), warnings=(evil,), written=evil))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"a\x1b[31mb\nc\u202e[bold]d" in text


def test_colours_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" not in printed(print_summary, FULL)
    assert "\x1b[32m" in printed(print_summary, FULL, terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in printed(print_summary, FULL, terminal=True)


def test_lines_are_not_broken_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 400
    print_summary(replace(FULL, written=name), console())
    assert name in capsys.readouterr().out


def test_progress_shows_the_step_on_a_terminal_and_nothing_elsewhere() -> None:
    for terminal in (True, False):
        out = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        with Live(out) as live:
            live.step("reading")
            live.step("verifying")
        assert ("verifying" in out.file.getvalue()) is terminal


def test_advice_is_only_given_for_reasons_that_exist() -> None:
    assert set(ADVICE) <= set(REASONS)


@pytest.mark.parametrize(
    ("target", "foreign", "said"),
    [
        ("ort-cpu", ("LayerNormalization",), "only onnxruntime knows; --target onnx avoids them"),
        ("ort-cpu", ("com.microsoft.FusedConv",), "only onnxruntime knows\n"),
        ("onnx", ("com.microsoft.FusedConv",), "only onnxruntime knows\n"),
        ("ort-cpu", ("LayerNormalization", "my.dom.Foo"), "not of the ONNX standard: my.dom.Foo"),
        ("onnx", ("Foo",), "not of the ONNX standard: Foo"),
    ],
)
def test_foreign_operators_are_told_apart(target: str, foreign: tuple[str, ...], said: str) -> None:
    text = printed(print_summary, replace(FULL, target=target, foreign=foreign))
    assert said in "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_standard_operators_need_no_word() -> None:
    text = printed(print_summary, replace(FULL, standard_onnx=True, foreign=()))
    assert "onnxruntime knows" not in text
