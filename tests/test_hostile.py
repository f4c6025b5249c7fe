"""Broken and hostile input: one clear message and exit 3 (or 4), or a correct result; never anything else."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import hostile
import hostile_sizes
import hypothesis
import onnx
import pytest
from hypothesis import strategies
from models_on_disk import command, names_in
from small_models import assert_agree

import normfuse
from normfuse import CannotVerifyError, InputError, Options
from normfuse.cli import run

UNVERIFIED = Options(verify=False)
LIMIT = 20  # seconds after which it counts as hung


@contextmanager
def time_limit(seconds: int = LIMIT) -> Iterator[None]:
    """Fails a test that hangs."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds} seconds")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def content(model: onnx.ModelProto | bytes) -> bytes:
    return model if isinstance(model, bytes) else model.SerializeToString()


def survives(data: bytes, path: Path, target: str | None = None) -> None:
    """Optimize a file of these bytes: a result, or a refusal that names the file; all else is a failure."""
    path.write_bytes(data)
    refusal = str(path)
    with time_limit():
        try:
            normfuse.optimize(path, path.with_name("out.onnx"), Options(verify=False, target=target))
        except InputError as error:
            refusal = str(error)
    assert str(path) in refusal
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", hostile.REFUSED)
def test_what_is_no_valid_model_is_refused(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content(hostile.REFUSED[name]()))
    with time_limit():
        assert run([str(path)]) == InputError.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    first, *rest = err.splitlines()
    assert first.startswith("error: ")
    assert "m.onnx" in first
    assert len(rest) <= 1  # a hint
    assert names_in(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("target", ["ort-cpu", "onnx"])
@pytest.mark.parametrize("name", hostile.TOLERATED)
def test_what_is_odd_is_refused_or_rewritten_but_never_crashes(
    tmp_path: Path, name: str, target: str
) -> None:
    survives(content(hostile.TOLERATED[name]()), tmp_path / "m.onnx", target)
    assert set(names_in(tmp_path)) <= {"m.onnx", "out.onnx"}


@pytest.mark.parametrize("name", [n for n in hostile.TOLERATED if " holds " in n or " is " in n])
def test_odd_numbers_in_constants_are_computed_as_before(name: str) -> None:
    model = hostile.TOLERATED[name]()
    assert isinstance(model, onnx.ModelProto)
    result = normfuse.optimize(model, options=UNVERIFIED).model
    assert isinstance(result, onnx.ModelProto)
    assert_agree(model, result)


@pytest.mark.parametrize(
    "name", ["a domain that does not exist", "opset 99", "an operator that does not exist"]
)
def test_what_no_runtime_runs_is_exit_4_and_not_written(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content(hostile.TOLERATED[name]()))
    assert run([str(path)]) in (CannotVerifyError.exit_code, InputError.exit_code)
    assert "Traceback" not in capsys.readouterr().err
    assert names_in(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("name", ["names with escapes", "names of markup", "names of 100,000 letters"])
def test_names_play_no_tricks_on_a_terminal(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content(hostile.TOLERATED[name]()))
    assert run([str(path), "--report", str(tmp_path / "r.json")]) == 0
    assert run(["inspect", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "\r" not in out + err


def seeds() -> list[bytes]:
    return [content(m) for m in (hostile.layer_norm(), hostile.conv_bn(), hostile.nested_if(2))]


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged_files_never_crash(tmp_path: Path, count: int) -> None:
    for data in hostile.mutants(seeds(), count, seed=count):
        survives(data, tmp_path / "m.onnx")


@hypothesis.settings(max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(data=strategies.data())
def test_bytes_written_over_never_crash(tmp_path: Path, data: strategies.DataObject) -> None:
    seed = data.draw(strategies.sampled_from(seeds()))
    at = data.draw(strategies.integers(0, len(seed)))
    patch = data.draw(strategies.binary(max_size=8))
    survives(seed[:at] + patch + seed[at + len(patch) :], tmp_path / "m.onnx")


@pytest.mark.slow
def test_damaged_files_never_crash_the_command(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for data in hostile.mutants(seeds(), 40, seed=5):
        path.write_bytes(data)
        done = command(path, "--no-verify", "--quiet", timeout=LIMIT + 10)
        assert done.returncode in (0, 3)
        assert b"Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) <= 2


@pytest.mark.slow
def test_damaged_files_never_crash_verification(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for data in hostile.mutants(seeds(), 300, seed=6):
        path.write_bytes(data)
        with time_limit(120):
            assert run([str(path), "--quiet"]) in (0, 1, 3, 4)


CLAIMS = ("shape of 2^60 without its data", "a norm over 2^60", "a ConstantOfShape of 2^60",
          "an Expand to 2^60", "a Range to 2^60", "a million axes")  # fmt: skip


@pytest.mark.parametrize("name", hostile_sizes.LARGE)
def test_a_small_file_with_a_large_effect_is_rewritten_all_the_same(name: str) -> None:
    with time_limit(60):
        result = normfuse.optimize(hostile_sizes.LARGE[name](), options=UNVERIFIED)
    assert "LayerNorm" in {site.kind for site in result.report.sites if site.status == "fused"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
@pytest.mark.parametrize(
    "name", [*CLAIMS, "a sum of a column and a row", "a row gathered as often as it is long"]
)
def test_a_size_that_is_only_claimed_takes_no_memory(tmp_path: Path, name: str) -> None:
    build = (hostile.REFUSED | hostile.TOLERATED | hostile_sizes.LARGE)[name]
    (tmp_path / "m.onnx").write_bytes(content(build()))
    line = [str(tmp_path / "m.onnx"), "--no-verify", "--quiet"]
    program = (
        "import sys; from normfuse.cli import run; code = run(sys.argv[1:]);"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *line], capture_output=True, timeout=60, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    assert int(done.stdout) < 600_000  # kB
