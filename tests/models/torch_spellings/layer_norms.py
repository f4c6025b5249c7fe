"""LayerNorm as models write it, by torch's own module and by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - the name that every torch user knows
from torch import nn

from .samples import (
    BATCH,
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

EPS = 1e-5


class ByHand(nn.Module):
    """A norm over the last axis, from a function of (x, scale, bias)."""

    def __init__(
        self, compute: Callable[..., torch.Tensor], shape: tuple[int, ...] = (WIDTH,), eps: float = EPS
    ) -> None:
        super().__init__()
        self.compute, self.eps = compute, eps
        self.scale, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))
        with torch.no_grad():
            self.scale.copy_(1 + 0.3 * drawn(*shape, seed=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized tensor, with the affine."""
        return self.compute(x, self.scale, self.bias, self.eps)


def var_biased(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """mean and var(unbiased=False)."""
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + eps) * w + b


def var_unbiased(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """var with Bessel's correction: N/(N-1) divides out of the root."""
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + eps) * w + b


def std_eps_outside(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """eps is added to the deviation."""
    return w * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + eps) + b


def sqrt_eps_outside(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """The same, with the deviation spelled out."""
    d = x - x.mean(-1, keepdim=True)
    return d / (torch.sqrt((d * d).mean(-1, keepdim=True)) + eps) * w + b


def square_by_product(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """d * d, sqrt, division."""
    d = x - x.mean(-1, keepdim=True)
    return d / torch.sqrt((d * d).mean(-1, keepdim=True) + eps) * w + b


def rsqrt_in_float32(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """Up to float32, rsqrt, back before the affine."""
    h = x.to(torch.float32)
    d = h - h.mean(-1, keepdim=True)
    return (d * torch.rsqrt(d.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * w + b


def negative_half_power(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """(var + eps) ** -0.5."""
    d = x - x.mean(-1, keepdim=True)
    return d * (d.pow(2).mean(-1, keepdim=True) + eps) ** -0.5 * w + b


def var_mean(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """torch.var_mean and rsqrt."""
    variance, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * w + b


def sum_over_size(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """Means as sums over the size of the axis."""
    n = x.shape[-1]
    d = x - x.sum(-1, keepdim=True) / n
    return d / torch.sqrt((d * d).sum(-1, keepdim=True) / n + eps) * w + b


def unsqueezed_means(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """keepdim=False, then unsqueeze."""
    d = x - x.mean(-1).unsqueeze(-1)
    return d / torch.sqrt(d.pow(2).mean(-1).unsqueeze(-1) + eps) * w + b


def power_and_division(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    """d ** 2, sqrt, division."""
    d = x - x.mean(-1, keepdim=True)
    return d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + eps) * w + b


class Olmo(nn.Module):
    """OlmoLayerNorm: in float32, without affine."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize, back in the input's dtype."""
        return F.layer_norm(x.to(torch.float32), (WIDTH,), None, None, EPS).to(x.dtype)


class PreNorm(nn.Module):
    """Two pre-norm blocks: x + linear(norm(x)), so that x is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The residual stream after both blocks."""
        for norm, linear in zip(self.norms, self.linears, strict=True):
            x = x + linear(norm(x))
        return x


class AdaLN(nn.Module):
    """DiT: LayerNorm without affine, scaled and shifted by what the condition says."""

    def __init__(self) -> None:
        super().__init__()
        self.modulation = nn.Linear(WIDTH, 2 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6, elementwise_affine=False)
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Modulated token vectors."""
        shift, scale = self.modulation(F.silu(condition)).chunk(2, dim=1)
        result: torch.Tensor = self.last(self.norm(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1))
        return result


class ChannelsLast(nn.Module):
    """ConvNeXt's LayerNorm2d: permute, LayerNorm, permute back."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N C H W in and out."""
        result: torch.Tensor = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return result


def convnext() -> nn.Module:
    """transformers' own ConvNextLayerNorm."""
    from transformers.models.convnext.modeling_convnext import ConvNextLayerNorm

    norm: nn.Module = ConvNextLayerNorm(8, eps=1e-6, data_format="channels_first")
    return norm


def between(norm: Callable[[], nn.Module], *, tokens_vary: bool = True) -> Sample:
    """A LayerNorm between two linear layers."""
    axes = TOKEN_AXES if tokens_vary else ({0: "batch"},)
    return Sample(lambda: randomize(BetweenLinears(norm())), tokens, axes)


def by_hand(compute: Callable[..., torch.Tensor]) -> Sample:
    """The same, for a function."""
    return between(lambda: ByHand(compute))


SAMPLES = {
    "ln": between(lambda: nn.LayerNorm(WIDTH)),
    "ln_noaffine": between(lambda: nn.LayerNorm(WIDTH, elementwise_affine=False)),
    "ln_multidim": between(lambda: nn.LayerNorm((TOKENS, WIDTH)), tokens_vary=False),
    "ln_man_var_biased": by_hand(var_biased),
    "ln_man_var_unbiased": by_hand(var_unbiased),
    "ln_man_std_eps_outside": by_hand(std_eps_outside),
    "ln_man_sqrt_eps_outside": by_hand(sqrt_eps_outside),
    "ln_man_sq_mul": by_hand(square_by_product),
    "ln_man_rsqrt_fp32": by_hand(rsqrt_in_float32),
    "ln_man_pow_neg_half": by_hand(negative_half_power),
    "ln_man_var_mean": by_hand(var_mean),
    "ln_man_sum_div": by_hand(sum_over_size),
    "ln_man_axis1_T": by_hand(unsqueezed_means),
    "ln_olmo": between(Olmo),
    "ln_scale_per_token": between(lambda: ByHand(power_and_division, (TOKENS, 1)), tokens_vary=False),
    "ln_prenorm_residual": Sample(lambda: randomize(PreNorm()), tokens, TOKEN_AXES),
    "ln_io": Sample(lambda: randomize(nn.LayerNorm(WIDTH)), tokens, TOKEN_AXES),
    "adaln_dit": Sample(
        lambda: randomize(AdaLN()),
        lambda: (*tokens(), drawn(BATCH, WIDTH, seed=3)),
        (*TOKEN_AXES, {0: "batch"}),
    ),
    "ln2d_permute": Sample(lambda: randomize(BetweenConvs(ChannelsLast(8))), image),
    "ln2d_convnext_hf": Sample(lambda: randomize(BetweenConvs(convnext())), image),
}
