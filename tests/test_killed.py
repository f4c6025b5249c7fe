"""Killed at any moment, a full disk, two runs at once: the input is untouched, the output whole or absent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from models_on_disk import (
    COMMAND,
    assert_same,
    batch_norm,
    command,
    layer_norm,
    names_in,
    outputs,
    save_with_data,
)

import normfuse
from normfuse.cli import run

QUIET = ["--no-verify", "--quiet"]
KILLS = [12, pytest.param(200, marks=pytest.mark.slow)]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def strays(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".normfuse-*"))


def killed_after(seconds: float, work: Callable[[], object]) -> None:
    """Do `work` over and over in another process, and kill that."""
    child = os.fork()
    if child == 0:
        try:
            while True:
                work()
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def seconds_of(work: Callable[[], object]) -> float:
    work()  # imports
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_command_leaves_the_output_whole_or_absent(tmp_path: Path, kills: int) -> None:
    path = save_with_data(batch_norm(), tmp_path / "in" / "m.onnx")
    out = tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    before, expected = (path.read_bytes(), (tmp_path / "in" / "m.onnx.data").read_bytes()), outputs(path)
    line = [str(path), "-o", str(out), *QUIET]
    usual = seconds_of(lambda: run(line))
    moment = random.Random(3)

    for _ in range(kills):
        killed_after(moment.uniform(0, 3 * usual), lambda: run(line))
        if out.exists():
            assert_same(outputs(out), expected)
        assert len(strays(out.parent)) <= 2  # no run leaves more than its own two, and each sweeps first

    assert run(line) == 0
    assert names_in(out.parent) == ["m.onnx", "m.onnx.data"]
    assert_same(outputs(out), expected)
    assert before == (path.read_bytes(), (tmp_path / "in" / "m.onnx.data").read_bytes())


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_command_in_place_leaves_the_old_model_or_the_new(tmp_path: Path, kills: int) -> None:
    pristine = save_with_data(batch_norm(), tmp_path / "pristine" / "m.onnx")
    expected, model, data = outputs(pristine), pristine.read_bytes(), (tmp_path / "pristine" / "m.onnx.data")
    path = tmp_path / "work" / "m.onnx"
    path.parent.mkdir()

    def fresh() -> None:
        """The model as it was; what a killed run left behind stays."""
        path.write_bytes(model)
        path.with_name("m.onnx.data").write_bytes(data.read_bytes())

    def once() -> object:
        return normfuse.optimize(path, options=normfuse.Options(verify=False, in_place=True, copy_data=True))

    def again() -> object:
        fresh()
        return once()

    usual = seconds_of(again)
    moment = random.Random(4)
    for _ in range(kills):
        fresh()
        killed_after(moment.uniform(0, 2 * usual), once)
        assert_same(outputs(path), expected)
        assert len(strays(path.parent)) <= 2
    again()
    assert_same(outputs(path), expected)
    assert strays(path.parent) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs limits on processes")
@pytest.mark.parametrize("limit", [100, 5_000, 200_000])
def test_a_disk_that_is_full_is_one_message_and_leaves_nothing(tmp_path: Path, limit: int) -> None:
    import resource

    path = save_with_data(batch_norm(), tmp_path / "in" / "m.onnx")
    (tmp_path / "out").mkdir()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = command(path, "-o", tmp_path / "out" / "m.onnx", *QUIET, preexec_fn=limited)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: cannot write")
    assert len(done.stderr.splitlines()) == 1
    assert names_in(tmp_path / "out") == []


@pytest.mark.skipif(sys.platform != "linux", reason="a folder in which not even root may write")
def test_a_folder_that_cannot_be_written_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    assert run([str(path), "-o", "/proc/self/fdinfo/m.onnx", *QUIET]) == 2
    assert capsys.readouterr().err.startswith("error: cannot write '/proc/self/fdinfo/m.onnx'")
    assert names_in(tmp_path) == ["m.onnx", "m.onnx.data"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    tmp_path.chmod(0o500)
    try:
        assert run([str(path), *QUIET]) == 2
    finally:
        tmp_path.chmod(0o700)
    assert capsys.readouterr().err.startswith("error: cannot write")


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("folder", "it is a folder"),
        ("no/such/m.onnx", "there is no folder"),
        ("m.onnx", "it is the input itself"),
        ("m.onnx.data", "it holds the weights of the input"),
    ],
)
def test_an_output_that_may_not_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, message: str
) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    (tmp_path / "folder").mkdir()
    before = path.read_bytes()
    assert run([str(path), "-o", str(tmp_path / out), *QUIET]) == 2
    assert message in capsys.readouterr().err
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["folder", "m.onnx", "m.onnx.data"]


@pytest.mark.parametrize("runs", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_runs_at_once_on_one_output_leave_one_whole_model(tmp_path: Path, runs: int) -> None:
    path = save_with_data(batch_norm(), tmp_path / "in" / "m.onnx")
    out = tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    line = [*COMMAND, str(path), "-o", str(out), *QUIET]

    started = [subprocess.Popen(line) for _ in range(runs)]

    assert [process.wait(timeout=120) for process in started] == [0] * runs
    assert names_in(out.parent) == ["m.onnx", "m.onnx.data"]
    assert_same(outputs(out), outputs(path))


def test_what_a_killed_run_left_is_swept_by_the_next(tmp_path: Path) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    (tmp_path / ".normfuse-0badc0de.tmp").write_bytes(b"half a model")
    assert run([str(path), *QUIET]) == 0
    assert names_in(tmp_path) == ["m.fused.onnx", "m.onnx", "m.onnx.data"]
