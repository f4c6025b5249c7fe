"""The Olive pass, in a real workflow: with Olive's other passes, and with what it is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

pytest.importorskip("olive")
pytestmark = pytest.mark.slow
MODEL = Path(__file__).parents[2] / "models" / "encoder.onnx"
QUIET = {"OLIVE_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1"}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **QUIET}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environ, capture_output=True, text=True)


def workflow(folder: Path, passes: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    accelerator = {"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}
    config = {
        "input_model": {"type": "ONNXModel", "model_path": str(folder / "encoder.onnx")},
        "systems": {"here": {"type": "LocalSystem", "accelerators": [accelerator]}},
        "passes": passes,
        "target": "here",
        "output_dir": str(folder / "out"),
        "cache_dir": str(folder / "cache"),
    }
    (folder / "workflow.json").write_text(json.dumps(config))
    shutil.copy(MODEL, folder)
    made = run(folder, "-m", "normfuse.integrations.olive")
    assert made.returncode == 0, made.stderr
    (folder / "passes.json").write_text(made.stdout)
    return run(folder, "-m", "olive", "run", "--config", "workflow.json", "--package-config", "passes.json")


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_a_workflow_fuses_and_verifies(tmp_path: Path) -> None:
    done = workflow(tmp_path, {"fuse": {"type": "NormFuse"}})
    assert done.returncode == 0, done.stderr
    assert operators(tmp_path / "out" / "model.onnx").count("LayerNormalization") == 5


def test_it_stands_beside_other_passes_and_takes_options(tmp_path: Path) -> None:
    passes = {
        "fuse": {"type": "NormFuse", "target": "onnx", "skip": ["LayerNorm"]},
        "half": {"type": "OnnxFloatToFloat16"},
    }
    done = workflow(tmp_path, passes)
    assert done.returncode == 0, done.stderr
    found = operators(tmp_path / "out" / "model.onnx")
    assert "LayerNormalization" not in found
    assert "ReduceMean" in found
