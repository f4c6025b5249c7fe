"""Networks with norms of channels to measure. Random weights, as torch exports them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ChannelsFirstNorm(nn.Module):
    """ConvNeXt's LayerNorm over axis 1, in small operators as its authors wrote it."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        unit = (x - mean) / torch.sqrt(variance + self.eps)
        return self.weight[:, None, None] * unit + self.bias[:, None, None]


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, norm, two convolutions of one pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = ChannelsFirstNorm(width)
        self.wide, self.narrow = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(functional.gelu(self.wide(self.norm(self.depthwise(x)))))


class ConvNeXt(nn.Module):
    """The stem and the first two stages of ConvNeXt-T."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, width, 4, 4), ChannelsFirstNorm(width)
        self.first = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(3)))
        self.down_norm, self.down = ChannelsFirstNorm(width), nn.Conv2d(width, 2 * width, 2, 2)
        self.second = nn.Sequential(*(ConvNeXtBlock(2 * width) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.stem_norm(self.stem(x)))
        return self.second(self.down(self.down_norm(x)))


class DiffusionBlock(nn.Module):
    """GroupNorm, SiLU, Conv, twice, beside a residual: the ResNet block of a diffusion U-Net."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.first, self.first_conv = nn.GroupNorm(8, inner), nn.Conv2d(inner, outer, 3, padding=1)
        self.second, self.second_conv = nn.GroupNorm(8, outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.first_conv(functional.silu(self.first(x)))
        return self.skip(x) + self.second_conv(functional.silu(self.second(y)))


class LinearNorms(nn.Module):
    """Linear layers on tokens; each norm sees their features on axis 1, behind a Transpose."""

    def __init__(self, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            y = layer(x)
            if isinstance(norm, nn.BatchNorm1d):
                y = norm(y.transpose(1, 2)).transpose(1, 2)
            x = torch.relu(y)
        return x


class UNet(nn.Module):
    """Two levels; transposed convolutions in groups lead up, and a norm reads both branches of a level."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.conv_0, self.norm_0 = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv_1 = nn.Conv2d(width, 2 * width, 3, 2, 1, bias=False)
        self.norm_1 = nn.BatchNorm2d(2 * width)
        self.lateral = nn.Conv2d(width, width, 1, bias=False)
        self.up_2 = nn.ConvTranspose2d(2 * width, width, 4, 2, 1, groups=4, bias=False)
        self.norm_2 = nn.BatchNorm2d(2 * width)
        self.conv_3 = nn.Conv2d(2 * width, width, 3, padding=1, bias=False)
        self.norm_3 = nn.BatchNorm2d(width)
        self.up_4 = nn.ConvTranspose2d(width, width, 3, 2, 1, output_padding=1, groups=width, bias=False)
        self.norm_4, self.head = nn.BatchNorm2d(width), nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = torch.relu(self.norm_0(self.conv_0(x)))
        deep = torch.relu(self.norm_1(self.conv_1(skip)))
        wide = torch.relu(self.norm_2(torch.cat([self.lateral(skip), self.up_2(deep)], 1)))
        wide = torch.relu(self.norm_3(self.conv_3(wide)))
        return self.head(torch.relu(self.norm_4(self.up_4(wide))))


class PreActivationBlock(nn.Module):
    """BatchNorm, ReLU, Conv, twice: the first norm reads the sum of the block before, and stays."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.first_conv = (
            nn.BatchNorm2d(width),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )
        self.second = nn.BatchNorm2d(width)
        self.second_conv = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first_conv(torch.relu(self.first(x)))
        return x + self.second_conv(torch.relu(self.second(y)))


class PreActivation(nn.Module):
    """A pre-activation ResNet."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(*(PreActivationBlock(width) for _ in range(depth)))
        self.norm, self.head = nn.BatchNorm2d(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.blocks(self.stem(x)))).mean((2, 3)))


def perceptron(width: int = 512, depth: int = 4) -> nn.Module:
    """Linear, BatchNorm1d and ReLU, several times."""
    layers = [(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*(module for layer in layers for module in layer), nn.Linear(width, 16))


def diffusion(width: int = 192) -> nn.Module:
    """Blocks of a diffusion U-Net at one resolution."""
    return nn.Sequential(DiffusionBlock(width, width), DiffusionBlock(width, width))
