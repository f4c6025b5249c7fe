"""Where the result goes (beside the input, elsewhere, in its place, to a stream), and its weights with it."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import onnx
import pytest
from models_on_disk import (
    assert_same,
    batch_norm,
    command,
    layer_norm,
    locations,
    names_in,
    outputs,
    save_with_data,
    without_norm,
)

import normfuse
from normfuse import Options, UsageError
from normfuse.cli import run

UNVERIFIED = Options(verify=False)
IN_PLACE = Options(verify=False, in_place=True)


def optypes(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}


# -- the weights ----------------------------------------------------------------------------------------


def test_beside_the_input_the_weights_are_shared_and_the_user_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    assert run([str(path)]) == 0
    assert names_in(tmp_path) == ["m.fused.onnx", "m.onnx", "m.onnx.data"]
    assert "it uses the weights in m.onnx.data: keep the files together" in capsys.readouterr().out


@pytest.mark.parametrize("build", [layer_norm, without_norm], ids=["fused", "unchanged"])
@pytest.mark.parametrize("folder", [".", "elsewhere"])
def test_copy_data_makes_the_output_depend_on_nothing(tmp_path: Path, build, folder: str) -> None:  # type: ignore[no-untyped-def]
    path = save_with_data(build(), tmp_path / "in" / "m.onnx")
    expected = outputs(path)
    out = tmp_path / "in" / folder / "out.onnx"
    out.parent.mkdir(exist_ok=True)

    result = normfuse.optimize(path, out, Options(copy_data=True))

    assert result.report.depends_on == ()
    assert locations(out) == {"out.onnx.data"}
    for name in ("m.onnx", "m.onnx.data"):
        (tmp_path / "in" / name).unlink()
    assert_same(outputs(out), expected)


def test_copy_data_on_the_command_line(tmp_path: Path) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    assert run([str(path), "--copy-data", "--no-verify", "--quiet"]) == 0
    assert locations(tmp_path / "m.fused.onnx") == {"m.fused.onnx.data"}


# -- in place -------------------------------------------------------------------------------------------


def test_in_place_replaces_the_model_and_leaves_the_data_that_it_still_uses(tmp_path: Path) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    path.chmod(0o640)
    data, expected = (tmp_path / "m.onnx.data").read_bytes(), outputs(path)

    result = normfuse.optimize(path, options=Options(in_place=True))

    assert result.model == path
    assert result.report.written == str(path)
    assert names_in(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx.data").read_bytes() == data
    assert "LayerNormalization" in optypes(path)
    assert_same(outputs(path), expected)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("copy_data", [False, True])
def test_in_place_changed_weights_come_to_a_new_file_and_the_old_one_goes_when_unused(
    tmp_path: Path, copy_data: bool
) -> None:
    path = save_with_data(batch_norm(), tmp_path / "m.onnx")
    expected = outputs(path)

    normfuse.optimize(path, options=Options(verify=False, in_place=True, copy_data=copy_data))

    new = "m.onnx.normfuse.data"
    assert locations(path) == ({new} if copy_data else {new, "m.onnx.data"})
    assert names_in(tmp_path) == sorted({"m.onnx", *locations(path)})
    assert_same(outputs(path), expected)


def test_data_that_is_not_named_after_the_model_is_never_removed(tmp_path: Path) -> None:
    path = save_with_data(batch_norm(), tmp_path / "m.onnx", data="shared.bin")
    normfuse.optimize(path, options=Options(verify=False, in_place=True, copy_data=True))
    assert names_in(tmp_path) == ["m.onnx", "m.onnx.data", "shared.bin"]
    assert locations(path) == {"m.onnx.data"}


def test_in_place_without_anything_to_do_touches_nothing(tmp_path: Path) -> None:
    path = save_with_data(without_norm(), tmp_path / "m.onnx")
    before = path.stat()
    result = normfuse.optimize(path, options=IN_PLACE)
    assert (result.model, result.report.written) == (path, None)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_in_place_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    normfuse.optimize(path, options=IN_PLACE)
    once = path.read_bytes()
    assert normfuse.optimize(path, options=IN_PLACE).report.written is None
    assert path.read_bytes() == once


def test_in_place_nothing_is_replaced_when_parity_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from normfuse.parity.verdict import ModelVerdict, Parity

    verdict = Parity(model=ModelVerdict("failed", "cpu", detail="made to fail"), sites={})
    monkeypatch.setattr("normfuse.parity.check.check", lambda *_: verdict)
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    before = path.read_bytes()
    with pytest.raises(normfuse.ParityError):
        normfuse.optimize(path, options=Options(in_place=True))
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["m.onnx", "m.onnx.data"]


def test_a_dry_run_in_place_writes_nothing(tmp_path: Path) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    before = path.read_bytes()
    assert normfuse.optimize(path, options=Options(in_place=True, dry_run=True)).report.written is None
    assert path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_in_place_a_link_is_refused(tmp_path: Path) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    (tmp_path / "link.onnx").symlink_to(path)
    with pytest.raises(UsageError, match="it is a link"):
        normfuse.optimize(tmp_path / "link.onnx", options=IN_PLACE)


def test_what_a_killed_run_left_is_used_again_as_the_data_file(tmp_path: Path) -> None:
    path = save_with_data(batch_norm(), tmp_path / "m.onnx")
    (tmp_path / "m.onnx.normfuse.data").write_bytes(b"half")
    expected = outputs(path)
    normfuse.optimize(path, options=IN_PLACE)
    assert names_in(tmp_path) == ["m.onnx", "m.onnx.data", "m.onnx.normfuse.data"]
    assert_same(outputs(path), expected)


@pytest.mark.parametrize("given", ["proto", "bytes", "out"])
def test_in_place_needs_a_file_and_no_other_output(tmp_path: Path, given: str) -> None:
    proto = layer_norm()
    onnx.save(proto, tmp_path / "m.onnx")
    model = {"proto": proto, "bytes": proto.SerializeToString(), "out": tmp_path / "m.onnx"}[given]
    with pytest.raises(UsageError, match="in place"):
        normfuse.optimize(model, tmp_path / "o.onnx" if given == "out" else None, IN_PLACE)


@pytest.mark.parametrize(
    "line", ["m.onnx --in-place -o o.onnx", "m.onnx --in-place --check", "- --in-place", "-"]
)
def test_contradictions_are_usage_errors(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert capsys.readouterr().err.startswith("error: ")


# -- streams --------------------------------------------------------------------------------------------


def test_a_model_goes_through_standard_input_and_output(tmp_path: Path) -> None:
    proto = layer_norm()
    done = command("-", "-o", "-", input=proto.SerializeToString(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    fused = onnx.load_from_string(done.stdout)
    assert {node.op_type for node in fused.graph.node} == {"MatMul", "LayerNormalization"}
    assert b"1 fused" in done.stderr
    assert b"standard output" in done.stderr
    assert names_in(tmp_path) == []


def test_an_unchanged_model_leaves_as_it_came(tmp_path: Path) -> None:
    data = without_norm().SerializeToString()
    done = command("-", "-o", "-", "--quiet", input=data, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (data, b"")


def test_bytes_give_bytes_and_a_stream_is_written() -> None:
    stream = io.BytesIO()
    result = normfuse.optimize(layer_norm().SerializeToString(), stream, UNVERIFIED)
    assert result.model == stream.getvalue()
    assert result.report.written is None


def test_standard_input_goes_to_a_file_and_a_file_to_standard_output(tmp_path: Path) -> None:
    onnx.save(layer_norm(), tmp_path / "m.onnx")
    data = (tmp_path / "m.onnx").read_bytes()
    assert command("-", "-o", tmp_path / "a.onnx", "--no-verify", input=data).returncode == 0
    done = command(tmp_path / "m.onnx", "-o", "-", "--no-verify")
    assert done.stdout == (tmp_path / "a.onnx").read_bytes()


def test_weights_in_a_data_file_do_not_fit_into_a_stream(tmp_path: Path) -> None:
    path = save_with_data(layer_norm(), tmp_path / "m.onnx")
    done = command(path, "-o", "-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"m.onnx.data" in done.stderr


@pytest.mark.parametrize(("data", "message"), [(b"", b"empty"), (b"nonsense" * 9, b"not an ONNX model")])
def test_nonsense_on_standard_input_is_exit_3(data: bytes, message: bytes) -> None:
    done = command("-", "-o", "-", input=data)
    assert (done.returncode, done.stdout) == (3, b"")
    assert message in done.stderr
    assert b"standard input" in done.stderr


def test_nothing_is_typed_in_by_hand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert run(["inspect", "-"]) == 2
    assert "by hand" in capsys.readouterr().err


def test_inspect_and_verify_read_standard_input(tmp_path: Path) -> None:
    onnx.save(layer_norm(), tmp_path / "m.onnx")
    data = (tmp_path / "m.onnx").read_bytes()
    assert command("-", "--check", input=data).returncode == 5
    assert b"LayerNorm" in command("inspect", "-", input=data).stdout
    assert command("verify", "-", tmp_path / "m.onnx", input=data).returncode == 0
    assert command("verify", "-", "-", input=data).returncode == 2
