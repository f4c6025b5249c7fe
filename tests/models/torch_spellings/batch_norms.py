"""BatchNorms beside linear operators, those that must stay, and norms of weights alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .spelling import BATCH, CHANNELS, TOKENS, WIDTH, Expectation, Spelling, drawn, randomize

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


def standard(
    name: str, modules: Callable[[], tuple[nn.Module, ...]], *shape: int, expectation: Expectation = "fold",
    bfloat16: bool = False, axes: tuple[dict[int, str], ...] = ({0: "batch"},),
) -> Spelling:  # fmt: skip
    """Modules in a row, on one input."""
    return Spelling(
        name, "BN", expectation, lambda: randomize(nn.Sequential(*modules())), lambda: (drawn(*shape),), axes,
        preserved=True, bfloat16=bfloat16,
    )  # fmt: skip


def special(
    name: str, build: Callable[[], nn.Module], *shape: int, expectation: Expectation = "fold", sites: int = 1,
    family: str = "BN", torchscript: bool = True, axes: tuple[dict[int, str], ...] = ({0: "batch"},),
) -> Spelling:  # fmt: skip
    """A module of its own."""
    return Spelling(
        name, family, expectation, lambda: randomize(build()), lambda: (drawn(*shape),), axes, sites=sites,
        torchscript=torchscript, preserved=torchscript,
    )  # fmt: skip


def convolved(conv: Callable[[], nn.Module], norm: Callable[[], nn.Module]) -> Callable[[], tuple[nn.Module, ...]]:
    """Linear operator, norm, relu."""
    return lambda: (conv(), norm(), nn.ReLU())


def bn2d() -> nn.Module:
    """The plain one."""
    return nn.BatchNorm2d(C)


IMAGE = (BATCH, C, 4, 3)

SPELLINGS = (
    standard("conv1d_bn", convolved(lambda: nn.Conv1d(C, C, 3, bias=False), lambda: nn.BatchNorm1d(C)), BATCH, C, 6),
    standard("conv2d_bn", convolved(lambda: nn.Conv2d(C, C, 3, padding=1, bias=False), bn2d), *IMAGE, bfloat16=True),
    standard(
        "conv3d_bn", convolved(lambda: nn.Conv3d(C, C, 3, padding=1, bias=False), lambda: nn.BatchNorm3d(C)),
        BATCH, C, 3, 4, 3,
    ),  # fmt: skip
    standard("conv2d_bias_bn", convolved(lambda: nn.Conv2d(C, C, 3, padding=1), bn2d), *IMAGE),
    standard(
        "conv2d_bn_eps1e-3",
        convolved(lambda: nn.Conv2d(C, C, 3, padding=1), lambda: nn.BatchNorm2d(C, eps=1e-3)), *IMAGE,
    ),  # fmt: skip
    standard("conv2d_group_bn", convolved(lambda: nn.Conv2d(C, C, 3, groups=2), bn2d), *IMAGE),
    standard("convT2d_bn", convolved(lambda: nn.ConvTranspose2d(C, C, 3, stride=2), bn2d), *IMAGE),
    standard(
        "convT2d_group_bn_nobias",
        convolved(lambda: nn.ConvTranspose2d(C, C, 3, stride=2, groups=2, bias=False), bn2d), *IMAGE,
    ),  # fmt: skip
    standard(
        "linear_nobias_bn1d",
        convolved(lambda: nn.Linear(WIDTH, WIDTH, bias=False), lambda: nn.BatchNorm1d(WIDTH)), 4, WIDTH,
    ),  # fmt: skip
    standard(
        "conv_reflectpad_bn",
        convolved(lambda: nn.Conv2d(C, C, 3, padding=1, padding_mode="reflect"), bn2d), *IMAGE,
    ),  # fmt: skip
    special("conv_addconst_bn", Shifted, *IMAGE),
    special("conv_shared_two_bn", Shared, *IMAGE, sites=2),
    special(
        "linear3d_flatten_bn1d", Flattened, BATCH, TOKENS, WIDTH, expectation="fold_hard",
        axes=({0: "batch", 1: "tokens"},),
    ),  # fmt: skip
    standard("bn_alone", lambda: (nn.ReLU(), bn2d(), nn.ReLU()), *IMAGE, expectation="keep"),
    standard("bn_conv_pad", lambda: (bn2d(), nn.Conv2d(C, C, 3, padding=1)), *IMAGE, expectation="keep"),
    standard(
        "bn_relu_conv", lambda: (bn2d(), nn.ReLU(), nn.Conv2d(C, C, 3, padding=1)), *IMAGE, expectation="keep"
    ),
    special("conv_fanout_bn", Reused, *IMAGE, expectation="keep"),
    standard(
        "linear3d_bn1d_T", convolved(lambda: nn.Linear(WIDTH, WIDTH), lambda: nn.BatchNorm1d(TOKENS)),
        BATCH, TOKENS, WIDTH, expectation="keep",
    ),  # fmt: skip
    standard(
        "bn_track_false",
        convolved(
            lambda: nn.Conv2d(C, C, 3, padding=1), lambda: nn.BatchNorm2d(C, track_running_stats=False)
        ),
        *IMAGE, expectation="keep",
    ),  # fmt: skip
    special("weight_norm_old", weight_norm, *IMAGE, expectation="constfold", family="WN"),
    special(
        "spectral_norm_param", spectral_norm, *IMAGE, expectation="constfold", family="WN", torchscript=False
    ),
)
