"""Same input, same bytes out: under any hash seed, in any process; and a second run changes nothing."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import hostile
import onnx
import pytest
from models_on_disk import batch_norm, layer_norm, save_with_data

import normfuse
from normfuse import Options

UNVERIFIED = Options(verify=False)
SMALL: dict[str, Callable[[], onnx.ModelProto]] = {
    "layer norm with a weight": layer_norm,
    "batch norm": batch_norm,
    "layer norm": hostile.layer_norm,
    "names with escapes": lambda: hostile.renamed(hostile.layer_norm(), "\x1b[2J"),
}
PROGRAM = """
import hashlib, pathlib, sys, normfuse
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    out = path.with_name("out.onnx")
    result = normfuse.optimize(path, out, normfuse.Options(verify=False))
    sites = [(s.kind, s.status, s.anchor, s.reason) for s in result.report.sites]
    print(hashlib.sha256(out.read_bytes() + repr(sites).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One model of each family that models/build.py builds, and the small ones above."""
    scripts = str(Path(__file__).parents[1] / "models")
    sys.path.insert(0, scripts)
    try:
        built = importlib.import_module("build").MODELS
    finally:
        sys.path.remove(scripts)
    folder = tmp_path_factory.mktemp("families")
    paths = []
    for name, build in {**built, **SMALL}.items():
        path = folder / name.replace(" ", "_") / "m.onnx"
        path.parent.mkdir()
        onnx.save(build(), path)
        paths.append(path)
    return paths


def digests(
    paths: list[Path], seed: str, python: str = sys.executable, folder: Path | None = None
) -> list[str]:
    """What a Python makes of the models; one of another environment must not see this checkout."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)
    line = [python, "-c", PROGRAM, *map(str, paths)]
    done = subprocess.run(
        line, env=environment, cwd=folder, capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.split()


def fresh_environment(folder: Path) -> str:
    """A virtual environment into which the project was installed as a user does it; its Python."""
    venv.create(folder, with_pip=True)
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    wanted = f"{Path(__file__).parents[1]}[cpu]"
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", wanted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the packages cannot be had here: {done.stderr.splitlines()[-1]}")
    return python


@pytest.mark.slow
def test_two_fresh_environments_give_the_same_bytes(families: list[Path], tmp_path: Path) -> None:
    first, second = (fresh_environment(tmp_path / name) for name in ("a", "b"))
    there = digests(families, "1", first, tmp_path)
    assert len(there) == len(families)
    assert digests(families, "2", second, tmp_path) == there


def test_the_bytes_and_the_report_do_not_depend_on_the_hash_seed(families: list[Path]) -> None:
    first = digests(families, "0")
    assert len(first) == len(families)
    assert digests(families, "1") == first
    assert digests(families, "4242") == first


def test_a_second_run_changes_nothing(families: list[Path]) -> None:
    for path in families:
        once, twice = path.with_name("once.onnx"), path.with_name("twice.onnx")
        normfuse.optimize(path, once, UNVERIFIED)
        again = normfuse.optimize(once, twice, UNVERIFIED)
        assert twice.read_bytes() == once.read_bytes(), path
        assert again.report.count("fused", "folded", "guarded") == 0


@pytest.mark.parametrize("target", ["onnx", "ort"])
def test_a_second_run_changes_nothing_for_other_targets(families: list[Path], target: str) -> None:
    options = Options(verify=False, target=target)
    for path in families:
        once, twice = path.with_name("once.onnx"), path.with_name("twice.onnx")
        normfuse.optimize(path, once, options)
        normfuse.optimize(once, twice, options)
        assert twice.read_bytes() == once.read_bytes(), path


def test_data_files_are_the_same_as_well(tmp_path: Path) -> None:
    path = save_with_data(batch_norm(), tmp_path / "in" / "m.onnx")
    contents = set()
    for k in range(2):
        out = tmp_path / str(k) / "m.onnx"
        out.parent.mkdir()
        normfuse.optimize(path, out, UNVERIFIED)
        files = sorted(out.parent.iterdir())
        contents.add(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest())
    assert len(contents) == 1
