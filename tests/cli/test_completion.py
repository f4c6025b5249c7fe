"""Shell completion: commands, options of the command that is being typed, and values that are known."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from normfuse.cli.completion import command_to_complete

COMMANDS = ("inspect", "verify")
PROGRAM = "from normfuse.cli import main; main()"


def completed(words: str, at: int) -> list[str]:
    environ = {
        **os.environ,
        "_NORMFUSE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(at),
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_nothing_is_completed_on_an_ordinary_line() -> None:
    assert command_to_complete(COMMANDS, {}) is None


def test_a_command_that_is_still_typed_belongs_to_the_main_one() -> None:
    environ = {"_NORMFUSE_COMPLETE": "complete_bash", "COMP_WORDS": "normfuse insp", "COMP_CWORD": "1"}
    assert command_to_complete(COMMANDS, environ) == ""


@pytest.mark.parametrize("line", ["normfuse inspect --n", "normfuse inspect "])
def test_the_command_is_taken_out_of_a_line(line: str) -> None:
    environ = {"_NORMFUSE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    assert command_to_complete(COMMANDS, environ) == "inspect"
    assert environ["_TYPER_COMPLETE_ARGS"] == line.replace("inspect ", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [
        ("normfuse ins", 1, ["inspect"]),
        ("normfuse --stri", 1, ["--strict"]),
        ("normfuse m.onnx --target ort-c", 3, ["ort-cpu", "ort-cuda"]),
        ("normfuse m.onnx --skip Layer", 3, ["LayerNorm"]),
        ("normfuse inspect --nod", 2, ["--node"]),
        ("normfuse explain extra", 2, ["extra-consumer"]),
    ],
)
def test_bash_gets_what_fits(words: str, at: int, expected: list[str]) -> None:
    assert completed(words, at) == expected
