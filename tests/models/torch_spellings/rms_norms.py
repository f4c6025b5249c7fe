"""RMSNorm as models write it, and the L1 and L2 normalizations, which divide by a norm of the same row."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - the name that every torch user knows
from torch import nn

from .samples import (
    CHANNELS,
    TOKEN_AXES,
    TOKENS,
    WIDTH,
    BetweenConvs,
    BetweenLinears,
    Sample,
    drawn,
    image,
    randomize,
    tokens,
)  # fmt: skip

Compute = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class ByHand(nn.Module):
    """A norm from a function of (x, scale)."""

    def __init__(self, compute: Compute, *shape: int) -> None:
        super().__init__()
        self.compute = compute
        self.scale = nn.Parameter(1 + 0.3 * drawn(*(shape or (WIDTH,)), seed=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized tensor, scaled."""
        return self.compute(x, self.scale)


class Unscaled(nn.Module):
    """A norm without parameters, from a function of x."""

    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized tensor."""
        return self.compute(x)


def unit(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / rms(x), in float32."""
    h = x.to(torch.float32)
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)


def llama(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Back to the input's dtype before the scale."""
    return w * unit(x).to(x.dtype)


def gemma(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """1 + w, in float32, back last."""
    return (unit(x) * (1.0 + w.float())).type_as(x)


def t5(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The variance in float32; x itself is promoted by the product."""
    y = x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6)
    return w * (y.to(w.dtype) if w.dtype in (torch.float16, torch.bfloat16) else y)


def olmo2(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Back to the input's dtype after the scale (OLMo 2)."""
    return (w * unit(x)).to(x.dtype)


def gpt_oss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same, with a division by the square root."""
    h = x.to(torch.float32)
    return (w * (h * torch.rsqrt(torch.mean(h**2, -1, keepdim=True) + 1e-6))).to(x.dtype)


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x * rsqrt((x * x).mean + eps) * w."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def normalized(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """F.normalize(x) * sqrt(d) * w."""
    return F.normalize(x, dim=-1) * WIDTH**0.5 * w


def negative_half_power(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x * (mean(x ** 2) + eps) ** -0.5 * w."""
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5) ** -0.5 * w


def sum_over_size(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x / sqrt(sum(x * x) / n + eps) * w."""
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-5) * w


def channels_first(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Over axis 1 of N C H W."""
    return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6) * w


def grouped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Four groups of the last axis, each normalized alone (Mamba 2)."""
    groups = x.reshape(*x.shape[:-1], 4, x.shape[-1] // 4)
    return (groups * torch.rsqrt(groups.pow(2).mean(-1, keepdim=True) + 1e-5)).reshape(x.shape) * w


class Residual(nn.Module):
    """The sum of residual and branch is normalized and used again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), ByHand(llama)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The residual stream after the block."""
        total = self.first(x) + x
        result: torch.Tensor = self.last(self.norm(total)) + total
        return result


def large_and_zero_rows() -> tuple[torch.Tensor, ...]:
    """One row whose squares overflow float16, and one of zeros."""
    x = drawn(2, TOKENS, WIDTH)
    x[0, 1] *= 300
    x[1, 2] = 0
    return (x,)


def between(norm: Callable[[], nn.Module]) -> Sample:
    """A norm between two linear layers."""
    return Sample(lambda: randomize(BetweenLinears(norm())), tokens, TOKEN_AXES)


def by_hand(compute: Compute) -> Sample:
    """The same, for a function of (x, scale)."""
    return between(lambda: ByHand(compute))


def unscaled(compute: Callable[[torch.Tensor], torch.Tensor]) -> Sample:
    """The same, for a function of x."""
    return between(lambda: Unscaled(compute))


SAMPLES = {
    "rms": between(lambda: nn.RMSNorm(WIDTH, eps=1e-6)),
    "rms_noaffine": between(lambda: nn.RMSNorm(WIDTH, eps=1e-6, elementwise_affine=False)),
    "rms_functional": by_hand(lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-5)),
    "rms_llama": by_hand(llama),
    "rms_gemma": by_hand(gemma),
    "rms_t5": by_hand(t5),
    "rms_olmo2": by_hand(olmo2),
    "rms_gpt_oss": by_hand(gpt_oss),
    "rms_residual": Sample(lambda: randomize(Residual()), tokens, TOKEN_AXES),
    "rms_man_mulsq": by_hand(product),
    "rms_man_normalize_sqrtd": by_hand(normalized),
    "rms_man_pow_neg_half": by_hand(negative_half_power),
    "rms_man_sumsq_div": by_hand(sum_over_size),
    "rms_grouped": by_hand(grouped),
    "rms_channels_first": Sample(
        lambda: randomize(BetweenConvs(ByHand(channels_first, CHANNELS, 1, 1))), image
    ),
    "rms_io_large": Sample(lambda: randomize(ByHand(llama)), large_and_zero_rows, TOKEN_AXES),
    "l2_div_norm": unscaled(lambda x: x / x.norm(dim=-1, keepdim=True)),
    "l2_normalize": unscaled(lambda x: F.normalize(x, dim=-1)),
    "l1_normalize": unscaled(lambda x: F.normalize(x, p=1, dim=-1)),
    "l2_div_norm_eps": unscaled(lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-6)),
    "l2_rsqrt_eps": unscaled(lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)),
}
