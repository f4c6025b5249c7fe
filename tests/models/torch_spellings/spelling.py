"""The record of one module that spells a normalization, and the shapes that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

Expectation = Literal[
    "fuse",  # one fused operator, affine included
    "fuse_core",  # the core is fused, a run-time or per-token affine stays outside
    "fuse_scaled",  # exact once epsilon and scale are rescaled (Bessel's correction)
    "fuse_transpose",  # between two Transposes, or in place where the runtime has an axis
    "fuse_reshape",  # on a reshaped view
    "fuse_eps",  # a clamped L1 or L2 norm: exact only above the clamp
    "fuse_l2",  # the same, written as an RMSNorm
    "fuse_rms",  # an L2 norm with epsilon in the root: an RMSNorm, rescaled
    "fold",  # into the weights of the linear operator beside it
    "fold_hard",  # the same, through a Reshape
    "keep",  # a BatchNorm that stays, or a normalization without an operator
    "nofuse",  # looks like one and is not
    "constfold",  # of weights alone: computed once
]

COUNTED = ("fuse", "fuse_core", "fuse_scaled", "fuse_transpose", "fuse_reshape", "constfold")
"""The expectations whose share is promised."""

BATCH, TOKENS, WIDTH, CHANNELS = 2, 6, 32, 8


@dataclass(frozen=True, eq=False)
class Spelling:
    """One module.

    family: LN, RMS, GN, IN, LP, GRN, BN or WN.
    expectation: what must come of each of its sites.
    build: the module, in evaluation mode, with every parameter drawn at random.
    inputs: its example inputs, float32.
    dynamic: for each input, axis -> symbol; {} is static.
    sites: how many normalizations it holds.
    torchscript: whether the TorchScript exporter can write it.
    preserved: whether it is exported with `training=PRESERVE` too, which leaves every BatchNorm in place.
    bfloat16: whether it is exported in bfloat16 too.
    """

    name: str
    family: str
    expectation: Expectation
    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    dynamic: tuple[dict[int, str], ...] = field(default=({0: "batch"},))
    sites: int = 1
    torchscript: bool = True
    preserved: bool = False
    bfloat16: bool = False


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """A float32 tensor of standard normal values, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def randomize(module: nn.Module) -> nn.Module:
    """Draw every parameter and running statistic anew, and switch to evaluation mode.

    Scales of ones, biases of zeros or a running variance of ones would let a rewrite pass that forgets them.
    """
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
            if parameter.ndim == 1 and not name.endswith("bias"):
                parameter.add_(1.0)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.3)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return module.eval()


def tokens() -> tuple[torch.Tensor, ...]:
    """A batch of token vectors."""
    return (drawn(BATCH, TOKENS, WIDTH),)


def image() -> tuple[torch.Tensor, ...]:
    """A batch of feature maps, N C H W."""
    return (drawn(BATCH, CHANNELS, 5, 6),)


TOKEN_AXES = ({0: "batch", 1: "tokens"},)


class BetweenLinears(nn.Module):
    """linear, norm, linear: the norm is neither at an input nor at an output."""

    def __init__(self, norm: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(width, width), norm, nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Token vectors in, token vectors out."""
        result: torch.Tensor = self.last(self.norm(self.first(x)))
        return result


class BetweenConvs(nn.Module):
    """conv, relu, norm, relu, conv, in one, two or three spatial dimensions."""

    def __init__(self, norm: nn.Module, rank: int = 2) -> None:
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
        self.first = conv(CHANNELS, CHANNELS, 3, padding=1)
        self.norm, self.last = norm, conv(CHANNELS, CHANNELS, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Feature maps in, feature maps out."""
        result: torch.Tensor = self.last(torch.relu(self.norm(torch.relu(self.first(x)))))
        return result
