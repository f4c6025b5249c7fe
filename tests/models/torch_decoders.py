"""Models whose inputs are hard to make up: keys and values of the past, token types, mel features.

input_ids, position_ids [batch, sequence]; attention_mask [batch, past + sequence]
past_key_values.0.key [batch, 2, past, 8] …       as optimum exports a decoder
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_models
from torch import nn

LAYERS, KEY_VALUES, HEAD = 2, 2, 8


class WithPast(nn.Module):
    """A decoder that takes and returns keys and values as tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, *past: torch.Tensor
    ) -> Any:
        """Logits, then the present key and value of each layer."""
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        present = [t for layer in result.past_key_values.layers for t in (layer.keys, layer.values)]
        return (result.logits, *present)


def llama_with_past(path: Path) -> Path:
    """A Llama of two layers, two of its four heads kept."""
    model = torch_models.llama().model
    sequence, past = 3, 4
    kept = [torch.randn(2, KEY_VALUES, past, HEAD) for _ in range(2 * LAYERS)]
    inputs = {
        "input_ids": torch.ones(2, sequence, dtype=torch.int64),
        "attention_mask": torch.ones(2, past + sequence, dtype=torch.int64),
        "position_ids": torch.arange(past, past + sequence).expand(2, sequence),
    }
    names = [f"{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]
    dynamic = {name: {0: "batch", 1: "sequence"} for name in ("input_ids", "position_ids", "logits")}
    dynamic["attention_mask"] = {0: "batch", 1: "past + sequence"}
    dynamic |= {f"past_key_values.{name}": {0: "batch", 2: "past"} for name in names}
    dynamic |= {f"present.{name}": {0: "batch", 2: "past + sequence"} for name in names}
    inputs |= {f"past_key_values.{name}": t for name, t in zip(names, kept, strict=True)}
    outputs = ["logits", *(f"present.{name}" for name in names)]
    return _export(WithPast(model).eval(), inputs, outputs, dynamic, path)


def bert_with_types(path: Path) -> Path:
    """A BERT of token ids, a mask and token types."""
    model = torch_models.FirstOutput(
        torch_models.bert().model, ("input_ids", "attention_mask", "token_type_ids")
    ).eval()
    ids = torch.ones(2, 7, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": ids, "token_type_ids": ids}
    return _export(model, inputs, ["output"], {name: {0: "batch", 1: "sequence"} for name in inputs}, path)


def whisper_encoder(path: Path, *, everything: bool = False) -> Path:
    """A Whisper encoder of 80 mel features in exactly 64 frames; everything: as if all were dynamic."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=torch_models.WIDTH, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=48,
        max_source_positions=32, vocab_size=64, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, attn_implementation="eager",
    )  # fmt: skip
    model = torch_models.finished(WhisperEncoder(config), "input_features")
    axes = {0: "batch_size", 1: "feature_size", 2: "encoder_sequence_length"} if everything else {0: "batch"}
    return _export(
        model, {"input_features": torch.randn(1, 80, 64)}, ["output"], {"input_features": axes}, path
    )


def _export(
    model: nn.Module, inputs: dict[str, torch.Tensor], outputs: list[str], dynamic: dict[str, dict[int, str]],
    path: Path,
) -> Path:  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, tuple(inputs.values()), str(path), dynamo=False, opset_version=14,
            input_names=list(inputs), output_names=outputs, dynamic_axes=dynamic,
        )  # fmt: skip
    return path


EXPORTS: dict[str, Callable[[Path], Path]] = {
    "llama-with-past": llama_with_past,
    "bert-with-types": bert_with_types,
    "whisper-encoder": whisper_encoder,
    "whisper-encoder-all-dynamic": lambda path: whisper_encoder(path, everything=True),
}
