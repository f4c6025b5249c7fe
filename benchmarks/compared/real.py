"""Models that people run: the three of rapidocr-onnxruntime, magika, and an encoder of MiniLM's shape.

The first four are files of installed packages; the encoder is transformers' BertModel with random weights.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import normfuse
from compared.timing import Array, Plan, measure
from normfuse.bench.ratios import Ratio
from normfuse.report.record import DONE


@dataclass(frozen=True)
class Real:
    """load: the bytes of the model. inputs: name -> array."""

    name: str
    load: Callable[[], bytes]
    inputs: Callable[[], dict[str, Array]]


def _packaged(package: str, pattern: str) -> bytes:
    """The model file of a package, found without running its code; FileNotFoundError where it is missing."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {package} is not installed")
    return sorted((Path(spec.origin).parent / "models").glob(pattern))[-1].read_bytes()


def _image(height: int, width: int) -> dict[str, Array]:
    pixels = np.random.default_rng(0).normal(size=(1, 3, height, width))
    return {"x": pixels.astype(np.float32)}


def _content() -> dict[str, Array]:
    return {"bytes": np.random.default_rng(0).integers(0, 256, (1, 2048)).astype(np.int32)}


def _tokens() -> dict[str, Array]:
    ids = np.random.default_rng(0).integers(0, 1000, (8, 128))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def minilm() -> bytes:
    """6 layers, 384 wide, 12 heads; a batch of 8 with 128 tokens each, as torch exports it by default."""
    import torch
    from torch import Tensor, nn
    from transformers import BertConfig, BertModel

    from compared.exporting import randomize

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = BertConfig(
                vocab_size=1000,
                hidden_size=384,
                num_hidden_layers=6,
                num_attention_heads=12,
                intermediate_size=1536,
            )
            self.bert = BertModel(config, add_pooling_layer=False)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            hidden: Tensor = self.bert(input_ids=input_ids, attention_mask=attention_mask)[0]
            return hidden

    inputs, buffer = _tokens(), io.BytesIO()
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            randomize(Encoder()),
            tuple(torch.from_numpy(array) for array in inputs.values()),
            buffer,  # type: ignore[arg-type]
            dynamo=False,
            opset_version=17,
            input_names=list(inputs),
            output_names=["y"],
        )
    return buffer.getvalue()


REAL = (
    Real(
        "rapidocr, detection",
        partial(_packaged, "rapidocr_onnxruntime", "*_det_infer.onnx"),
        partial(_image, 320, 320),
    ),
    Real(
        "rapidocr, recognition",
        partial(_packaged, "rapidocr_onnxruntime", "*_rec_infer.onnx"),
        partial(_image, 48, 320),
    ),
    Real(
        "rapidocr, direction",
        partial(_packaged, "rapidocr_onnxruntime", "*_cls_infer.onnx"),
        partial(_image, 48, 192),
    ),
    Real("magika", partial(_packaged, "magika", "*/model.onnx"), _content),
    Real("encoder of MiniLM's shape", minilm, _tokens),
)


@dataclass(frozen=True)
class Run:
    """faster: original / result. noise: the original / itself. done: how many sites were rewritten."""

    real: Real
    seconds: float
    done: int
    faster: Ratio
    noise: Ratio


def rows(plan: Plan) -> tuple[list[Run], dict[str, str]]:
    """All that are installed, and why the others are not measured."""
    found, absent = [], {}
    for real in REAL:
        try:
            model = real.load()
        except (FileNotFoundError, ModuleNotFoundError) as error:
            absent[real.name] = str(error)
            continue
        result = normfuse.optimize(model)
        assert isinstance(result.model, bytes)
        forms = {"original": model, "normfuse": result.model, "itself": model}
        times = measure(forms, real.inputs(), plan)
        done = sum(site.status in DONE for site in result.report.sites)
        faster, noise = times.ratio("original", "normfuse"), times.ratio("original", "itself")
        found.append(Run(real, times.of("original"), done, faster, noise))
    return found, absent
