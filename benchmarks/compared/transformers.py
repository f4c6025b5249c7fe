"""Transformers to measure: a post-LN encoder, a pre-norm RMS decoder. Their weights are random."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS = 6


class RsqrtLayerNorm(nn.LayerNorm):
    """d * rsqrt(mean(d * d) + eps): a reciprocal root, and a square that is a product."""

    def forward(self, x: Tensor) -> Tensor:
        d = x - x.mean(-1, keepdim=True)
        return d * torch.rsqrt((d * d).mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


class RMSNorm(nn.Module):
    """weight * (x * rsqrt(mean(x^2) + eps)), as transformers writes it for Llama."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Attention(nn.Module):
    """Self-attention; causal for a decoder."""

    def __init__(self, width: int, bias: bool, causal: bool = False) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=bias) for _ in range(4))
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, HEADS, width // HEADS)
        query, key, value = (
            part(x).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) / (width // HEADS) ** 0.5
        if self.causal:
            scores = scores + torch.full((tokens, tokens), -10000.0).triu(1)
        mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class EncoderLayer(nn.Module):
    """norm(x + branch(x)), twice."""

    def __init__(self, width: int, norm: type[nn.LayerNorm]) -> None:
        super().__init__()
        self.attention = Attention(width, bias=True)
        self.first, self.second = norm(width), norm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x + self.attention(x))
        return self.second(x + self.narrow(functional.gelu(self.wide(x))))


class DecoderLayer(nn.Module):
    """x + branch(norm(x)), twice; the second branch is gated."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width, bias=False, causal=True)
        self.first, self.second = RMSNorm(width), RMSNorm(width)
        inner = 8 * width // 3
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def encoder(norm: type[nn.LayerNorm], width: int = 384, layers: int = 6) -> nn.Module:
    """A post-LN encoder of tokens that are embedded already."""
    return nn.Sequential(*(EncoderLayer(width, norm) for _ in range(layers)))


def decoder(width: int = 384, layers: int = 6) -> nn.Module:
    """A pre-norm decoder with a norm at its end."""
    return nn.Sequential(*(DecoderLayer(width) for _ in range(layers)), RMSNorm(width))
