"""What is shipped: a wheel that works away from the checkout, and files that other tools read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
SOURCES = ("normfuse", "docs", "models", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def run(*command: str, folder: Path) -> str:
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_works_away_from_the_checkout(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(tmp_path),
        str(source),
        folder=tmp_path,
    )
    wheel = next(tmp_path.glob("*.whl"))
    run(python, "-m", "pip", "install", "-q", f"{wheel}[cpu]", folder=tmp_path)
    shutil.copy(ROOT / "models" / "encoder.onnx", tmp_path)

    command = str(tmp_path / "venv" / "bin" / "normfuse")
    assert "5 fused" in run(command, "encoder.onnx", folder=tmp_path)
    assert "```onnx" in run(command, "explain", "extra-consumer", folder=tmp_path)
    assert "onnxruntime" in run(command, "--version", folder=tmp_path)


def test_the_action_runs_what_it_is_given(tmp_path: Path) -> None:
    action = loaded("action.yml")
    step = action["runs"]["steps"][-1]
    assert set(step["env"]) == {"MODELS", "ARGUMENTS"}
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(ROOT / "models" / "convnet.onnx", tmp_path / name)
    stub = tmp_path / "bin" / "normfuse"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\necho "$@"\n')
    stub.chmod(0o755)
    environ = {
        "PATH": f"{stub.parent}:{os.environ['PATH']}",
        "MODELS": "*.onnx",
        "ARGUMENTS": "--check --strict",
    }
    done = subprocess.run(
        ["bash", "-c", step["run"]], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["a.onnx", "b.onnx", "--check", "--strict"]


def test_the_inputs_of_the_action_are_all_used() -> None:
    action = loaded("action.yml")
    used = set(re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text("utf-8")))
    assert used == set(action["inputs"])


def test_the_pre_commit_hook_fails_on_a_model_with_something_to_fuse(tmp_path: Path) -> None:
    (hook,) = loaded(".pre-commit-hooks.yaml")
    assert re.search(hook["files"], "models/encoder.onnx")
    assert not re.search(hook["files"], "README.md")
    for name in ("encoder.onnx", "convnet.onnx"):
        shutil.copy(ROOT / "models" / name, tmp_path)
    words = hook["entry"].split()
    line = [sys.executable, "-c", "from normfuse.cli import main; main()", *words[1:]]
    done = subprocess.run(
        [*line, "encoder.onnx", "convnet.onnx"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 5, done.stderr


def test_everything_that_the_image_copies_is_there_and_not_ignored() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").split() if line.startswith("!")
    }
    names = {name for line in copied for name in line.split()}
    assert all((ROOT / name).exists() for name in names)
    assert names == allowed


def test_the_citation_names_the_version_that_is_shipped() -> None:
    import normfuse

    assert str(loaded("CITATION.cff")["version"]) == normfuse.__version__
