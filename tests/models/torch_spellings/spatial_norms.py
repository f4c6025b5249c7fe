"""Norms over feature maps: GroupNorm, InstanceNorm, adaptive instance norm, global response norm."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - the name that every torch user knows
from torch import nn

from .samples import BATCH, CHANNELS, WIDTH, BetweenConvs, Sample, drawn, image, randomize

GROUPS = 4


class SigmoidProduct(nn.Module):
    """GroupNorm, then y * sigmoid(y)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, CHANNELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalized and gated by itself."""
        y: torch.Tensor = self.norm(x)
        return y * torch.sigmoid(y)


class AdaptiveGroupNorm(nn.Module):
    """A diffusion block: GroupNorm, scaled and shifted by the time embedding, SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, 2 * CHANNELS)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.norm = nn.GroupNorm(GROUPS, CHANNELS)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Feature maps, modulated."""
        scale, shift = self.embed(F.silu(time))[:, :, None, None].chunk(2, dim=1)
        return F.silu(self.norm(self.conv(x)) * (1 + scale) + shift)


def mean_and_deviation(x: torch.Tensor, eps: float = 1e-5) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and unbiased deviation of each channel, as AdaIN's authors write them."""
    n, c = x.shape[:2]
    deviation = (x.view(n, c, -1).var(dim=2) + eps).sqrt().view(n, c, 1, 1)
    return x.view(n, c, -1).mean(dim=2).view(n, c, 1, 1), deviation


class AdaIN(nn.Module):
    """The content's normalized maps with the style's mean and deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.content = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.style = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, content: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        """Restyled feature maps."""
        content, style = self.content(content), self.style(style)
        style_mean, style_deviation = mean_and_deviation(style)
        mean, deviation = mean_and_deviation(content)
        return (content - mean) / deviation * style_deviation + style_mean


class GlobalResponse(nn.Module):
    """ConvNeXt V2: the L2 norm over space, relative to its mean over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(drawn(1, 1, 1, CHANNELS, seed=1))
        self.bias = nn.Parameter(drawn(1, 1, 1, CHANNELS, seed=2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N C H W in and out."""
        x = x.permute(0, 2, 3, 1)
        norm = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        relative = norm / (norm.mean(dim=-1, keepdim=True) + 1e-6)
        return (self.scale * (x * relative) + self.bias + x).permute(0, 3, 1, 2)


def line() -> tuple[torch.Tensor, ...]:
    """N C L."""
    return (drawn(BATCH, CHANNELS, 6),)


def volume() -> tuple[torch.Tensor, ...]:
    """N C D H W."""
    return (drawn(BATCH, CHANNELS, 4, 5, 6),)


def group_norm() -> nn.Module:
    """Four groups of two channels."""
    return nn.GroupNorm(GROUPS, CHANNELS)


def between(
    norm: Callable[[], nn.Module], inputs: Callable[[], tuple[torch.Tensor, ...]] = image, rank: int = 2
) -> Sample:
    """A norm between two convolutions."""
    return Sample(lambda: randomize(BetweenConvs(norm(), rank)), inputs)


SAMPLES = {
    "gn": between(group_norm),
    "gn_1d": between(group_norm, line, 1),
    "gn_silu": between(lambda: nn.Sequential(group_norm(), nn.SiLU())),
    "gn_sigmul": between(SigmoidProduct),
    "gn_ada": Sample(
        lambda: randomize(AdaptiveGroupNorm()),
        lambda: (*image(), drawn(BATCH, WIDTH, seed=3)),
        ({0: "batch"}, {0: "batch"}),
    ),
    "in1d": between(lambda: nn.InstanceNorm1d(CHANNELS), line, 1),
    "in2d": between(lambda: nn.InstanceNorm2d(CHANNELS)),
    "in3d": between(lambda: nn.InstanceNorm3d(CHANNELS), volume, 3),
    "in2d_affine": between(lambda: nn.InstanceNorm2d(CHANNELS, affine=True)),
    "adain": Sample(
        lambda: randomize(AdaIN()),
        lambda: (*image(), drawn(BATCH, CHANNELS, 5, 6, seed=3)),
        ({0: "batch"}, {0: "batch"}),
    ),
    "grn_convnextv2": between(GlobalResponse),
}
