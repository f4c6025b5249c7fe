"""What every module that spells a normalization needs: random parameters, example inputs, neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

BATCH, TOKENS, WIDTH, CHANNELS = 2, 6, 32, 8


@dataclass(frozen=True, eq=False)
class Sample:
    """One module and what to call it with.

    build: the module, in evaluation mode, with every parameter drawn at random.
    inputs: its example inputs, float32.
    dynamic: for each input, axis -> symbol; {} is static.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    dynamic: tuple[dict[int, str], ...] = ({0: "batch"},)


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
