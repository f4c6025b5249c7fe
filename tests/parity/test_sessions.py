"""Sessions: providers that are not there, what the runtime refuses, bfloat16, and more outputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from parity_models import model, save

from normfuse.errors import CannotVerifyError
from normfuse.parity.model import Model
from normfuse.parity.providers import provider_name
from normfuse.parity.runtime import runtime
from normfuse.parity.sessions import RuntimeRefusalError, Session, open_with_outputs
from normfuse.parity.settings import Settings


def test_without_onnxruntime_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(CannotVerifyError, match=r"pip install 'normfuse\[cpu\]'"):
        provider_name("cpu")
    runtime.cache_clear()


def test_importing_parity_does_not_load_the_runtime() -> None:
    code = "import sys, normfuse.parity; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_the_runtime_refuses_is_one_clear_line() -> None:
    with pytest.raises(RuntimeRefusalError) as caught:
        Session(b"no model", Settings())
    assert "\n" not in str(caught.value)
    assert "ONNXRuntimeError" not in str(caught.value)


def test_brain_floats_go_in_and_come_out() -> None:
    proto = model("bfloat16[B, 4] x", "bfloat16[B, 4] y", "y = Identity(x)")
    x = np.array([[1.5, -2, 3e38, np.inf]], ml_dtypes.bfloat16)
    y = Session(proto.SerializeToString(), Settings()).run({"x": x})["y"]
    assert y.dtype == x.dtype
    assert (y == x).all()
    empty = Session(proto.SerializeToString(), Settings()).run({"x": x[:0]})["y"]
    assert empty.shape == (0, 4)


def test_more_values_can_be_had_as_outputs(tmp_path: Path) -> None:
    path = save(
        model("float[B, 2] x", "float[B, 2] y", "a = Neg(x) b = Exp(a) y = Abs(b)"), tmp_path / "m.onnx"
    )
    session = open_with_outputs(Model.load(path), Settings(), ["a", "b", "a", "y"])
    found = session.run({"x": np.ones((1, 2), np.float32)}, ["a", "y"])
    assert found["a"].tolist() == [[-1, -1]]
    assert session.run({"x": np.ones((1, 2), np.float32)}, []) == {}
