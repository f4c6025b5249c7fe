"""The networks that are measured: how each is built, exported, and which of its BatchNorms fold by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from compared import convolutional, transformers
from compared.by_hand import Fold, apart, by_hand, without_norms
from compared.exporting import export, randomize

TOKENS = (4, 64, 384)
ENCODER = partial(transformers.encoder, nn.LayerNorm)


@dataclass(frozen=True)
class Network:
    """build: the module. shape: of its input. folds: by hand."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    exporter: str
    folds: tuple[Fold, ...] = ()
    opset: int = 17

    def forms(self) -> dict[str, bytes]:
        """The model as it is exported, its best form by hand, and the limit: without norms."""
        module = randomize(self.build())
        best, bare = by_hand(module, self.folds), without_norms(module, self.folds)
        newer = max(self.opset, 17)
        return {
            "original": export(module, self.shape, self.exporter, self.opset),
            "by hand": apart(export(best, self.shape, self.exporter, newer)),
            "without norms": export(bare, self.shape, self.exporter, newer),
        }


NETWORKS = (
    Network("encoder, LayerNormalization", ENCODER, TOKENS, "TorchScript"),
    Network("encoder, Pow and Div", ENCODER, TOKENS, "TorchScript", opset=13),
    Network(
        "encoder, rsqrt of a product",
        partial(transformers.encoder, transformers.RsqrtLayerNorm),
        TOKENS,
        "TorchScript",
    ),
    Network("decoder, pre-norm RMS", transformers.decoder, TOKENS, "TorchScript"),
    Network("ConvNeXt, channels-first LayerNorm", convolutional.ConvNeXt, (1, 3, 112, 112), "TorchScript"),
    Network(
        "U-Net blocks, GroupNorm and SiLU", convolutional.diffusion, (1, 192, 16, 16), "dynamo", opset=18
    ),
    Network(
        "MLP, BatchNorm1d",
        convolutional.perceptron,
        (64, 512),
        "TorchScript",
        tuple((str(3 * k), str(3 * k + 1), 0) for k in range(4)),
    ),
    Network(
        "Linear and BatchNorm1d through Transpose",
        convolutional.LinearNorms,
        (4, 256, 128),
        "dynamo",
        tuple((f"layers.{k}", f"norms.{k}", 0) for k in range(4)),
        opset=18,
    ),
    Network(
        "U-Net, grouped ConvTranspose",
        convolutional.UNet,
        (1, 3, 96, 96),
        "dynamo, not optimized",
        (
            ("conv_0", "norm_0", 0),
            ("conv_1", "norm_1", 0),
            ("lateral", "norm_2", 0),
            ("up_2", "norm_2", 16),
            ("conv_3", "norm_3", 0),
            ("up_4", "norm_4", 0),
        ),
        opset=18,
    ),
    Network(
        "pre-activation BatchNorm",
        convolutional.PreActivation,
        (1, 3, 64, 64),
        "dynamo",
        tuple((f"blocks.{k}.first_conv", f"blocks.{k}.second", 0) for k in range(4)),
        opset=18,
    ),
)
