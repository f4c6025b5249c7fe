"""The folder in which the commands of the documentation run: the models that they name, as small as can be.

model.onnx, encoder.onnx, convnet.onnx, l2_normalize.onnx, model.fused.onnx
models/        as in the repository
bert/          as Optimum exports a model: model.onnx, config.json, tokenizer.json
llm/           as onnxruntime-genai has it: genai_config.json, model.onnx and its data file
batch.npz      inputs of model.onnx
report.json    of the run that wrote model.fused.onnx
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx

import normfuse
from normfuse.report.write import write_report

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "models"))

import build  # noqa: E402

ENCODER, CONVNET = ROOT / "models" / "encoder.onnx", ROOT / "models" / "convnet.onnx"


def fill(folder: Path) -> None:
    """Put the models and files that the pages name into an empty folder."""
    copies = {
        ENCODER: ("model.onnx", "encoder.onnx", "bert/model.onnx"),
        CONVNET: ("convnet.onnx",),
    }
    shutil.copytree(ROOT / "models", folder / "models", ignore=shutil.ignore_patterns("__pycache__"))
    for source, names in copies.items():
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
    onnx.save(build.MODELS["l2_normalize"](), folder / "l2_normalize.onnx")
    done = normfuse.optimize(folder / "model.onnx", options=normfuse.Options(verify=False))
    write_report(done.report, folder / "report.json")
    (folder / "bert" / "config.json").write_text('{"model_type": "bert"}')
    (folder / "bert" / "tokenizer.json").write_text("{}")
    _genai(folder / "llm")
    rng = np.random.default_rng(0)
    np.savez(
        folder / "batch.npz",
        input_ids=rng.integers(0, 96, (2, 5)),
        attention_mask=np.ones((2, 5), np.int64),
    )


def _genai(folder: Path) -> None:
    """As onnxruntime-genai reads it: the configuration names the model, whose weights lie beside it."""
    folder.mkdir()
    config = {"model": {"type": "llama", "decoder": {"filename": "model.onnx"}}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    onnx.save(
        onnx.load(ENCODER),
        folder / "model.onnx",
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=1024,
    )
