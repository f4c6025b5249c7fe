"""Hand-written networks in torch whose norms a person with a pencil could fold, and how they are exported."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import onnx
import torch
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor
Activation = Callable[[], nn.Module]


def conv(
    inner: int,
    outer: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: Activation | None = nn.ReLU,
) -> nn.Sequential:
    """Conv, BatchNorm, activation."""
    layers = [
        nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outer),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


class Residual(nn.Module):
    """Two convolutions beside a projection."""

    def __init__(self, inner: int, outer: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(inner, outer, 3, stride), conv(outer, outer, act=None))
        self.skip = conv(inner, outer, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1), Residual(8, 8), Residual(8, 16, 2))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class DenseNet(nn.Module):
    """Norms stand in front of the activation: those on a concatenation that is read again stay."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.layers = nn.ModuleList(self.layer(8 + 4 * k) for k in range(3))
        self.out = nn.Sequential(
            nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1, bias=False), nn.AvgPool2d(2)
        )
        self.norm, self.head = nn.BatchNorm2d(10), nn.Linear(10, 5)

    @staticmethod
    def layer(width: int) -> nn.Sequential:
        first = [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 8, 1, bias=False)]
        return nn.Sequential(*first, nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.stem(x), 3, 2, 1)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(torch.relu(self.norm(self.out(x))).mean((2, 3)))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 2, 1), nn.Conv2d(width // 2, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.adaptive_avg_pool2d(x, 1)
        return x * functional.hardsigmoid(self.up(torch.relu(self.down(pooled))))


class Inverted(nn.Module):
    """Expansion, depthwise convolution, squeeze and excitation, projection."""

    def __init__(self, inner: int, wide: int, outer: int, act: Activation, stride: int = 1) -> None:
        super().__init__()
        depthwise = conv(wide, wide, 5, stride, wide, act)
        self.body = nn.Sequential(
            conv(inner, wide, 1, act=act), depthwise, SqueezeExcite(wide), conv(wide, outer, 1, act=None)
        )
        self.adds = inner == outer and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class MobileNet(nn.Module):
    """MobileNet-V3 with Hardswish, EfficientNet with SiLU."""

    def __init__(self, act: Activation = nn.Hardswish) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(3, 8, 3, 2, act=act),
            Inverted(8, 16, 8, act),
            Inverted(8, 16, 12, act, 2),
            conv(12, 24, 1, act=act),
        )
        self.head = nn.Sequential(nn.Linear(24, 16), nn.BatchNorm1d(16), nn.Hardswish(), nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class UNet(nn.Module):
    """Grouped and depthwise transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = conv(3, 8), conv(8, 16, 3, 2)
        self.up = nn.Sequential(nn.ConvTranspose2d(16, 8, 4, 2, 1, groups=4), nn.BatchNorm2d(8))
        twice = nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1, groups=8, bias=False)
        self.last = nn.Sequential(conv(16, 8), twice, nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        skip = self.first(x)
        return self.last(torch.cat([skip, torch.relu(self.up(self.second(skip)))], 1))


class PointNet(nn.Module):
    """Linear and BatchNorm1d on [N, L, C]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 16), nn.Linear(16, 16), nn.Linear(16, 32)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(16), nn.BatchNorm1d(16), nn.BatchNorm1d(32)])
        self.last = nn.Sequential(nn.Conv1d(32, 32, 1), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.relu(norm(layer(x).transpose(1, 2)).transpose(1, 2))
        return self.head(self.last(x.transpose(1, 2)).max(2)[0])


class LinearNorm(nn.Module):
    """LeViT's: the norm is over flattened tokens."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(inner, outer, bias=False), nn.BatchNorm1d(outer)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return self.norm(x.flatten(0, 1)).reshape_as(x)


class LeViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = LinearNorm(16, 48), LinearNorm(16, 16)
        self.wide, self.narrow = LinearNorm(16, 32), LinearNorm(32, 16)
        self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        parts = self.qkv(x).view(batch, tokens, 2, 24).split([8, 8, 8], 3)
        q, k, v = (part.permute(0, 2, 1, 3) for part in parts)
        mixed = ((q @ k.transpose(-2, -1) * 0.35).softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, 16)
        x = x + self.proj(functional.hardswish(mixed))
        x = x + self.narrow(functional.hardswish(self.wide(x)))
        return self.head(self.norm(x.mean(1)))


def perceptron() -> nn.Module:
    """Norms behind linear layers with and without bias, and one in front."""
    first = [
        nn.Linear(8, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 16, bias=False),
        nn.BatchNorm1d(16),
    ]
    return nn.Sequential(*first, nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))


class PreActivation(nn.Module):
    """Norms stand in front of their activations: the first of each block stays, the second folds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(self.block() for _ in range(3))
        self.norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, 5)

    @staticmethod
    def block() -> nn.Sequential:
        first = [nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False)]
        return nn.Sequential(
            *first, nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(torch.relu(self.norm(x)).mean((2, 3)))


@dataclass(frozen=True)
class Network:
    """build: the module. shape: of its input. stays: how many of its norms cannot be folded."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    stays: int = 0


NETWORKS = {
    "resnet": Network(ResNet, (2, 3, 32, 32)),
    "densenet": Network(DenseNet, (2, 3, 16, 16), stays=4),
    "mobilenet": Network(MobileNet, (2, 3, 32, 32)),
    "efficientnet": Network(lambda: MobileNet(nn.SiLU), (2, 3, 32, 32)),
    "unet": Network(UNet, (2, 3, 16, 16)),
    "pointnet": Network(PointNet, (2, 9, 3)),
    "levit": Network(LeViT, (2, 9, 16)),
    "perceptron": Network(perceptron, (4, 8)),
    "preactivation": Network(PreActivation, (2, 3, 16, 16), stays=4),
}


def exported(name: str, exporter: str) -> onnx.ModelProto:
    """One of NETWORKS as torch exports it."""
    return export(NETWORKS[name], exporter)


def export(network: Network, exporter: str) -> onnx.ModelProto:
    """A network with random statistics, as torch exports it when it is asked to fold nothing."""
    torch.manual_seed(0)
    module = network.build()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(norm.weight, 1.0, 0.3)
            nn.init.normal_(norm.bias, 0.0, 0.3)
            nn.init.normal_(norm.running_mean, 0.0, 0.3)  # type: ignore[arg-type]
            nn.init.uniform_(norm.running_var, 0.5, 1.5)  # type: ignore[arg-type]
    example, buffer = torch.randn(*network.shape), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            torch.onnx.export(
                module.eval(),
                (example,),
                buffer,
                dynamo=False,
                opset_version=17,
                input_names=["x"],
                training=torch.onnx.TrainingMode.PRESERVE,
                do_constant_folding=False,
                dynamic_axes={"x": {0: "N"}},
            )
            return onnx.load_from_string(buffer.getvalue())
        program = torch.onnx.export(
            module.eval(),
            (example,),
            dynamo=True,
            opset_version=18,
            optimize=False,
            input_names=["x"],
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim("N")},),
        )
    assert program is not None
    return program.model_proto
