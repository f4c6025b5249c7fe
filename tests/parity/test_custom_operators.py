"""Custom operators: with their library the model is proven, without it the rewrites one by one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from environments import CannotInstallError, environment, run
from parity_models import floats, layer_norm, model, save

from normfuse.cli import run as normfuse
from normfuse.errors import CannotVerifyError
from normfuse.parity.sessions import Session
from normfuse.parity.settings import Settings

# A release of onnxruntime for which the package with the operators was built, and the package.
PACKAGES = ("onnxruntime>=1.27", "onnxruntime-extensions")
LIBRARY = "import onnxruntime_extensions; print(onnxruntime_extensions.get_library_path())"
RNG = np.random.default_rng(0)
CONSTANTS = floats({"g": 1 + RNG.normal(size=16) * 0.3, "b": RNG.normal(size=16)})


def with_custom_operator(folder: Path) -> Path:
    """A LayerNorm, NegPos of onnxruntime-extensions, which splits by sign, and a LayerNorm beside it."""
    body = (
        layer_norm("x", "z", 1e-5, "g", "b") + " neg, pos = ai.onnx.contrib.NegPos(z) s = Sub(pos, neg) "
        "t = Add(x, z) " + layer_norm("t", "u", 1e-5, "g", "b") + " y = Add(s, u)"
    )
    ends = "float[B, 16] x", "float[B, 16] y"
    return save(model(*ends, body, CONSTANTS, domains=', "ai.onnx.contrib": 1'), folder / "model.onnx")


def test_without_the_library_the_operator_is_named_and_the_sites_are_certified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_custom_operator(tmp_path)

    assert normfuse([str(path), "--report", str(tmp_path / "r.json")]) == 4

    said = capsys.readouterr()
    assert "custom operators that onnxruntime does not know (ai.onnx.contrib.NegPos)" in said.err
    assert "rewrites hold" in said.err
    assert "--custom-op-library FILE" in said.err
    assert "not verified" in said.out
    assert not (tmp_path / "model.fused.onnx").exists()
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["parity"]["result"] == "not-run"
    assert [s["parity"]["result"] for s in report["sites"] if s["status"] == "fused"] == ["equal", "equal"]
    count = len(report["sites"])
    assert f"run alone, {count} of {count} rewrites hold" in said.err


def test_verify_without_the_library_is_exit_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = with_custom_operator(tmp_path)
    assert normfuse(["verify", str(path), str(path)]) == 4
    assert "ai.onnx.contrib.NegPos" in capsys.readouterr().err


def test_a_library_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert normfuse(["m.onnx", "--custom-op-library", "none.so"]) == 2
    assert "'none.so': there is no such file" in capsys.readouterr().err


def test_what_is_no_library_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "ops.so").write_text("no library")
    proto = model("float[2] x", "float[2] y", "y = Neg(x)")
    with pytest.raises(CannotVerifyError, match=r"ops\.so cannot be loaded as a library of custom operators"):
        Session(proto.SerializeToString(), Settings(custom_operators=tmp_path / "ops.so"))


@pytest.mark.slow
def test_with_the_library_the_model_is_proven(tmp_path: Path) -> None:
    try:
        python = environment(*PACKAGES)
    except CannotInstallError as error:
        pytest.skip(f"onnxruntime-extensions cannot be installed here: {error}")
    library = run(python, code=LIBRARY).stdout.strip()
    path, out = with_custom_operator(tmp_path), tmp_path / "model.fused.onnx"

    done = run(python, path, "--custom-op-library", library)
    assert done.returncode == 0, done.stderr
    assert [n.op_type for n in onnx.load(out).graph.node].count("LayerNormalization") == 2

    done = run(python, "verify", path, out, "--custom-op-library", library)
    assert done.returncode == 0, done.stderr
    assert run(python, "verify", path, out).returncode == 4
