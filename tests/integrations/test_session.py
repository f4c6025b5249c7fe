"""The drop-in session: it runs the fused model, makes it once, and falls back with a warning."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import normfuse
from normfuse.integrations import session as room

RMS = """<ir_version: 8, opset_import: ["": 17]>
rms (float[2,32] x) => (float[2,32] y) <float eps = {1e-5}>
{ s = Mul(x, x) m = ReduceMean<axes=[-1]>(s) v = Add(m, eps) r = Sqrt(v) y = Div(x, r) }"""
X = np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(parser.parse_model(RMS), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def operators(path: Path | None) -> list[str]:
    assert path is not None
    return [node.op_type for node in onnx.load(path).graph.node]


def test_it_runs_the_fused_model_and_computes_the_same(path: Path, tmp_path: Path) -> None:
    session = normfuse.InferenceSession(path, cache=tmp_path / "cache")
    assert operators(session.fused) == ["SimplifiedLayerNormalization"]
    assert isinstance(session, onnxruntime.InferenceSession)
    plain = onnxruntime.InferenceSession(str(path))
    np.testing.assert_allclose(session.run(None, {"x": X})[0], plain.run(None, {"x": X})[0], rtol=1e-5)


def test_bytes_are_as_good_as_a_path(path: Path, tmp_path: Path) -> None:
    session = normfuse.InferenceSession(path.read_bytes(), cache=tmp_path / "cache")
    assert operators(session.fused) == ["SimplifiedLayerNormalization"]


def test_a_model_is_fused_once(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = normfuse.InferenceSession(path, cache=tmp_path / "cache")
    monkeypatch.setattr(room.api, "optimize", None)  # would fail if it were called
    assert normfuse.InferenceSession(path, cache=tmp_path / "cache").fused == first.fused


def test_a_changed_model_or_option_is_another_result(path: Path, tmp_path: Path) -> None:
    first = normfuse.InferenceSession(path, cache=tmp_path / "cache").fused
    options = normfuse.Options(target="ort")
    assert normfuse.InferenceSession(path, options=options, cache=tmp_path / "cache").fused != first
    onnx.save(parser.parse_model(RMS.replace("1e-5", "1e-4")), path)
    assert normfuse.InferenceSession(path, cache=tmp_path / "cache").fused != first


def test_changed_external_weights_are_another_result(tmp_path: Path) -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2,32] x) => (float[2,32] y) <float[32,32] w> { y = MatMul(x, w) }""")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((32, 32), np.float32), "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    first = room._key(path, normfuse.Options())
    status = (tmp_path / "w.bin").stat()
    os.utime(tmp_path / "w.bin", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert room._key(path, normfuse.Options()) != first


def test_what_cannot_be_fused_runs_as_it_is(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise normfuse.CannotVerifyError("no runtime for it")

    monkeypatch.setattr(room.api, "optimize", refuses)
    with pytest.warns(RuntimeWarning, match="so the original runs: no runtime for it"):
        session = normfuse.InferenceSession(path, cache=tmp_path / "cache")
    assert session.fused is None
    assert session.run(None, {"x": X})[0].shape == (2, 32)


def test_a_cache_that_cannot_be_written_is_no_failure(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.warns(RuntimeWarning, match="so the original runs"):
        session = normfuse.InferenceSession(path, cache=tmp_path / "file" / "cache")
    assert session.fused is None


def test_the_cache_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NORMFUSE_CACHE", str(tmp_path / "here"))
    assert room.cache_folder() == tmp_path / "here"


def test_a_file_that_is_no_model_is_onnxruntimes_own_error(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.warns(RuntimeWarning, match="not an ONNX model"), pytest.raises(Exception, match=r"m\.onnx"):
        normfuse.InferenceSession(tmp_path / "m.onnx", cache=tmp_path / "cache")


def test_a_missing_model_is_onnxruntimes_own_error(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning), pytest.raises(Exception, match="doesn't exist"):
        normfuse.InferenceSession(tmp_path / "nothing.onnx", cache=tmp_path / "cache")
