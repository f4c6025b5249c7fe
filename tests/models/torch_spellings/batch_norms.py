"""BatchNorms beside linear operators, those that must stay, and norms of weights alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .samples import BATCH, CHANNELS, TOKENS, WIDTH, Sample, drawn, randomize

C = CHANNELS


class Shared(nn.Module):
    """One convolution called twice, each time with a BatchNorm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(C, C, 3, padding=1)
        self.first, self.second = nn.BatchNorm2d(C), nn.BatchNorm2d(C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice through the same weights."""
        return torch.relu(self.second(self.conv(torch.relu(self.first(self.conv(x))))))


class Reused(nn.Module):
    """The raw output of the convolution is used beside the BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(C, C, 3, padding=1), nn.BatchNorm2d(C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both branches, added."""
        raw = self.conv(x)
        return torch.relu(self.norm(raw)) + raw


class Shifted(nn.Module):
    """conv, a constant per channel, BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(C, C, 3, padding=1, bias=False), nn.BatchNorm2d(C)
        self.shift = nn.Parameter(drawn(C, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Feature maps."""
        return torch.relu(self.norm(self.conv(x) + self.shift))


class Flattened(nn.Module):
    """linear, all tokens in one axis, BatchNorm, back."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Token vectors."""
        y = self.linear(x)
        batch, count = y.shape[0], y.shape[1]
        return torch.relu(self.norm(y.reshape(-1, WIDTH)).reshape(batch, count, WIDTH))


def weight_norm() -> nn.Module:
    """torch.nn.utils.weight_norm, the hook."""
    return nn.Sequential(nn.utils.weight_norm(nn.Conv2d(C, C, 3, padding=1)), nn.ReLU())


def spectral_norm() -> nn.Module:
    """The parametrization; in evaluation mode its two vectors are buffers."""
    conv = nn.Conv2d(C, C, 3, padding=1)
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(conv), nn.ReLU())


def in_a_row(*modules: Callable[[], nn.Module], shape: tuple[int, ...] = (BATCH, C, 4, 3)) -> Sample:
    """Modules one after the other, on one input."""
    return Sample(lambda: randomize(nn.Sequential(*(m() for m in modules))), lambda: (drawn(*shape),))


def special(build: Callable[[], nn.Module]) -> Sample:
    """A module of its own, on feature maps."""
    return Sample(lambda: randomize(build()), lambda: (drawn(BATCH, C, 4, 3),))


def conv(**how: Any) -> Callable[[], nn.Module]:
    """A 3x3 convolution."""
    return lambda: nn.Conv2d(C, C, 3, **how)


def transposed(**how: Any) -> Callable[[], nn.Module]:
    """A 3x3 transposed convolution of stride 2."""
    return lambda: nn.ConvTranspose2d(C, C, 3, stride=2, **how)


def bn2d() -> nn.Module:
    """The plain one."""
    return nn.BatchNorm2d(C)


SAMPLES = {
    "conv1d_bn": in_a_row(
        lambda: nn.Conv1d(C, C, 3, bias=False), lambda: nn.BatchNorm1d(C), nn.ReLU, shape=(BATCH, C, 6)
    ),
    "conv2d_bn": in_a_row(conv(padding=1, bias=False), bn2d, nn.ReLU),
    "conv3d_bn": in_a_row(
        lambda: nn.Conv3d(C, C, 3, padding=1, bias=False),
        lambda: nn.BatchNorm3d(C),
        nn.ReLU,
        shape=(BATCH, C, 3, 4, 3),
    ),
    "conv2d_bias_bn": in_a_row(conv(padding=1), bn2d, nn.ReLU),
    "conv2d_bn_eps1e-3": in_a_row(conv(padding=1), lambda: nn.BatchNorm2d(C, eps=1e-3), nn.ReLU),
    "conv2d_group_bn": in_a_row(conv(groups=2), bn2d, nn.ReLU),
    "convT2d_bn": in_a_row(transposed(), bn2d, nn.ReLU),
    "convT2d_group_bn_nobias": in_a_row(transposed(groups=2, bias=False), bn2d, nn.ReLU),
    "linear_nobias_bn1d": in_a_row(
        lambda: nn.Linear(WIDTH, WIDTH, bias=False), lambda: nn.BatchNorm1d(WIDTH), nn.ReLU, shape=(4, WIDTH)
    ),
    "conv_reflectpad_bn": in_a_row(conv(padding=1, padding_mode="reflect"), bn2d, nn.ReLU),
    "conv_addconst_bn": special(Shifted),
    "conv_shared_two_bn": special(Shared),
    "linear3d_flatten_bn1d": Sample(
        lambda: randomize(Flattened()), lambda: (drawn(BATCH, TOKENS, WIDTH),), ({0: "batch", 1: "tokens"},)
    ),
    "bn_alone": in_a_row(nn.ReLU, bn2d, nn.ReLU),
    "bn_conv_pad": in_a_row(bn2d, conv(padding=1)),
    "bn_relu_conv": in_a_row(bn2d, nn.ReLU, conv(padding=1)),
    "conv_fanout_bn": special(Reused),
    "linear3d_bn1d_T": in_a_row(
        lambda: nn.Linear(WIDTH, WIDTH), lambda: nn.BatchNorm1d(TOKENS), nn.ReLU, shape=(BATCH, TOKENS, WIDTH)
    ),
    "bn_track_false": in_a_row(
        conv(padding=1), lambda: nn.BatchNorm2d(C, track_running_stats=False), nn.ReLU
    ),
    "weight_norm_old": special(weight_norm),
    "spectral_norm_param": special(spectral_norm),
}
