"""Every command and every piece of Python in the documentation does what its page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import NOT_RUN, ROOT, Block, Line, blocks, lines
from stock import fill

from normfuse.cli.entry import run

PROGRAM = f"""#!{sys.executable}
from normfuse.cli import main
main()
"""


def marked(found: list[Block]) -> list[object]:
    return [
        pytest.param(block, id=block.name, marks=[pytest.mark.slow] if block.slow else []) for block in found
    ]


SHELL, PYTHON = blocks("sh"), blocks("python")


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    fill(folder)
    return folder


@pytest.fixture
def here(stock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy of the stock, as the working folder; nothing is kept in the user's cache."""
    folder = tmp_path / "here"
    shutil.copytree(stock, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NORMFUSE_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture(scope="session")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables under which `normfuse` and `python` are those under test."""
    programs = tmp_path_factory.mktemp("bin")
    for name, text in {"normfuse": PROGRAM, "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n'}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def story(block: Block, of: list[Block]) -> list[Block]:
    """A block, and those that its page says have to be run before it."""
    place = of.index(block)
    return of[place - block.after : place + 1]


def is_plain(command: str) -> bool:
    """Whether a line is one call of normfuse, with nothing in it for a shell to do."""
    return command.startswith("normfuse ") and not set("|&;<>$`*(") & set(command)


def same(printed: str) -> list[str]:
    """The lines of an output without what changes from run to run: measured times, errors, and padding."""
    behind = r"(?= (?:relative|absolute|from float64|\(offset|plain runs|ms\b|s\b))"
    text = re.sub(rf"\d[\d.,]*(?:e[+-]\d+)?{behind}", "N", printed)
    text = re.sub(r"N (?:ms|s)\b", "N s", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def carry_out(line: Line, environ: dict[str, str]) -> tuple[int, str]:
    if is_plain(line.command):
        return run(shlex.split(line.command, comments=True)[1:]), ""
    done = subprocess.run(["bash", "-c", line.command], env=environ, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("block", marked(SHELL))
def test_every_command_does_what_its_page_says(
    block: Block, here: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = ""
    for part in story(block, SHELL):
        for line in lines(part):
            if line.not_run is None:
                code, said = carry_out(line, environ)
                printed, errors = capsys.readouterr()
                assert code == line.code, f"{line.command}\n{said}{errors}{printed}"
    if block.shown:
        assert same(printed) == same(block.shown)


@pytest.mark.parametrize("block", marked(SHELL))
def test_every_command_is_one_that_a_shell_understands(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in lines(block):
        if line.not_run is not None:
            for script in re.findall(r"python ((?:benchmarks|models)/\S+\.py)", line.command):
                assert (ROOT / script).exists(), line.command


def test_nothing_is_excused_that_no_page_has() -> None:
    commands = [line.command for block in SHELL for line in lines(block)]
    assert [p for p in NOT_RUN if not any(re.search(p, command) for command in commands)] == []


@pytest.mark.parametrize("block", marked(PYTHON))
def test_every_piece_of_python_runs(block: Block, here: Path) -> None:
    names: dict[str, object] = {"__name__": "__docs__"}
    for part in story(block, PYTHON):
        exec(compile(part.text, part.name, "exec"), names)
