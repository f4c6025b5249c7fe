"""Small random transformers of five architectures, and their export by torch.

Every norm weight and bias is drawn at random: a scale of ones or a bias of zeros would let a rewrite that
forgets them pass. Widths are small, so that an export and its check take seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

BATCH, SEQUENCE, WIDTH, VOCABULARY = 2, 7, 32, 64


@dataclass(frozen=True)
class Family:
    """One architecture.

    build: the seeded module, which takes tensors by position and returns one tensor.
    inputs: its example inputs by name, in that order.
    dynamic: input name -> {axis: symbol}.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    dynamic: dict[str, dict[int, str]]


class FirstOutput(nn.Module):
    """Calls a transformers model with keyword inputs and returns its first tensor only."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The last hidden state (or the logits)."""
        result: torch.Tensor = self.model(**dict(zip(self.names, tensors, strict=True)), **self.options())[0]
        return result

    def options(self) -> dict[str, bool]:
        """A decoder's cache would be a second output, of a type that no exporter takes."""
        return {"use_cache": False} if getattr(self.model.config, "use_cache", False) else {}


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a LayerNorm or an RMSNorm (transformers names its own after the architecture)."""
    return type(module).__name__.endswith(("LayerNorm", "RMSNorm"))


def norm_modules(model: nn.Module) -> list[nn.Module]:
    """Every LayerNorm and RMSNorm of the model."""
    return [module for module in model.modules() if is_norm(module)]


def randomize(model: nn.Module) -> None:
    """Draw every parameter anew; scales stand around 1 and differ for every channel."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
        for module in norm_modules(model):
            module.get_parameter("weight").add_(1.0)


def finished(model: nn.Module, *names: str) -> nn.Module:
    """The model with random parameters, in evaluation mode, wrapped to take tensors by position."""
    randomize(model)
    return FirstOutput(model, names).eval()


def bert() -> nn.Module:
    """Post-LN encoder: an embedding LayerNorm and two a layer."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=32, attn_implementation="eager",
    )  # fmt: skip
    return finished(BertModel(config, add_pooling_layer=False), "input_ids", "attention_mask")


def gpt2() -> nn.Module:
    """Pre-LN decoder: two LayerNorms a layer and one at the end."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=WIDTH, n_layer=2, n_head=4, n_inner=48,
        attn_implementation="eager",
    )  # fmt: skip
    return finished(GPT2LMHeadModel(config), "input_ids", "attention_mask")


def llama() -> nn.Module:
    """Pre-norm decoder with RMSNorm: two a layer and one at the end."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        attn_implementation="eager",
    )  # fmt: skip
    return finished(LlamaForCausalLM(config), "input_ids", "attention_mask")


def t5() -> nn.Module:
    """Encoder with T5's RMSNorm: two a layer and one at the end."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        attn_implementation="eager",
    )  # fmt: skip
    return finished(T5EncoderModel(config), "input_ids", "attention_mask")


def vit() -> nn.Module:
    """Pre-LN vision encoder: two LayerNorms a layer and one at the end."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        image_size=16, patch_size=4, attn_implementation="eager",
    )  # fmt: skip
    return finished(ViTModel(config, add_pooling_layer=False), "pixel_values")


def tokens() -> dict[str, torch.Tensor]:
    """Token ids within the vocabulary, and a mask of ones."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def image() -> dict[str, torch.Tensor]:
    """Two images of the size that the model expects."""
    return {"pixel_values": torch.randn(BATCH, 3, 16, 16, generator=torch.Generator().manual_seed(1))}


TEXT = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"}}

FAMILIES: dict[str, Family] = {
    "bert": Family(bert, tokens, TEXT),
    "gpt2": Family(gpt2, tokens, TEXT),
    "llama": Family(llama, tokens, TEXT),
    "t5": Family(t5, tokens, TEXT),
    "vit": Family(vit, image, {"pixel_values": {0: "batch"}}),
}


def write(family: Family, path: Path, *, dynamo: bool, opset: int) -> Path:
    """Export one architecture with dynamic batch and sequence."""
    inputs = family.inputs()
    names = list(inputs)
    if dynamo:
        symbols = (tuple(family.dynamic[name] for name in names),)  # one tuple: forward takes *tensors
        how = {"dynamic_shapes": symbols, "external_data": False, "verbose": False}
    else:
        how = {"dynamic_axes": family.dynamic}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            family.build(), tuple(inputs.values()), str(path), dynamo=dynamo, opset_version=opset,
            input_names=names, output_names=["output"], **how,
        )  # fmt: skip
    return path
