"""`explain`: every code has something to say, and a slip is met with the code that was meant."""

from __future__ import annotations

import pytest

from normfuse.cli import run
from normfuse.norms.refusal import REASONS


@pytest.mark.parametrize("code", ["extra-consumer", "exponent!=2", "exponent-not-2"])
def test_a_code_is_explained_with_an_example_and_a_cure(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", code]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# `")
    assert "```onnx" in said
    assert "## What you can do" in said


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0
    said = capsys.readouterr().out
    assert all(code in said and sentence in said for code, sentence in REASONS.items())


def test_a_slip_is_met_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "extra-consumr"]) == 2
    assert "did you mean 'extra-consumer'?" in capsys.readouterr().err
