"""The best form of each network that a person can write down, and the same network without its norms.

Nothing here uses normfuse. A norm is replaced in torch by what is exported as the fastest operators known:

    LayerNorm, any spelling     LayerNormalization, its residual add a Sum (see `apart`)
    RMSNorm                     SimplifiedLayerNormalization
    channels-first LayerNorm    Transpose, LayerNormalization, Transpose: beside a Conv they cost nothing
    GroupNorm                   InstanceNormalization of the groups, BatchNormalization for the affine
    BatchNorm                   into the weights of the layer in front of it

Without its norms a network is the limit: a norm that costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from compared.convolutional import ChannelsFirstNorm
from compared.transformers import RMSNorm

# The paths of a linear layer and of the BatchNorm behind it; the first channel of the norm that is its own.
Fold = tuple[str, str, int]
NORMS = (nn.LayerNorm, RMSNorm, ChannelsFirstNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)
SHRINK = 0.3


class _Simplified(torch.autograd.Function):
    """Exported as onnxruntime's SimplifiedLayerNormalization; runs only there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return x.clone()

    @staticmethod
    def symbolic(g: Any, x: Any, weight: Any, eps: float) -> Any:
        y = g.op("SimplifiedLayerNormalization", x, weight, axis_i=-1, epsilon_f=eps)
        return y.setType(x.type())


class Simplified(nn.Module):
    """RMSNorm in one operator."""

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Simplified.apply(x, self.weight, self.eps)
        return y


class Turned(nn.Module):
    """Channels-first LayerNorm as Transpose, LayerNormalization, Transpose."""

    def __init__(self, norm: ChannelsFirstNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        y = functional.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, self.eps)
        return y.permute(0, 3, 1, 2)


class OnGroups(nn.Module):
    """GroupNorm as InstanceNormalization of the groups; its affine as one BatchNormalization."""

    def __init__(self, norm: nn.GroupNorm) -> None:
        super().__init__()
        self.groups, self.eps = norm.num_groups, norm.eps
        self.affine = nn.BatchNorm2d(norm.num_channels, eps=0.0).eval()
        self.affine.weight, self.affine.bias = norm.weight, norm.bias

    def forward(self, x: Tensor) -> Tensor:
        groups = x.reshape(x.shape[0], self.groups, -1)
        return self.affine(functional.instance_norm(groups, eps=self.eps).reshape(x.shape))


def plain(norm: nn.LayerNorm) -> nn.LayerNorm:
    """torch's own LayerNorm, which is exported as LayerNormalization, for any spelling."""
    made = nn.LayerNorm(norm.normalized_shape, norm.eps)
    made.weight, made.bias = norm.weight, norm.bias
    return made


Form = Callable[[Any], nn.Module]
FORMS: dict[type[nn.Module], Form] = {
    nn.LayerNorm: plain,
    RMSNorm: Simplified,
    ChannelsFirstNorm: Turned,
    nn.GroupNorm: OnGroups,
}


def by_hand(module: nn.Module, folds: Sequence[Fold] = ()) -> nn.Module:
    """A copy with every norm in its best form; `folds` names the BatchNorms that go into weights."""
    made = copy.deepcopy(module)
    for linear, norm, start in folds:
        fold(made.get_submodule(linear), made.get_submodule(norm), start)
    for norm in {norm for _, norm, _ in folds}:
        _put(made, norm, nn.Identity())
    for name, part in list(made.named_modules()):
        form = next((form for kind, form in FORMS.items() if isinstance(part, kind)), None)
        if form is not None:
            _put(made, name, form(part))
    return made.eval()


@torch.no_grad()
def without_norms(module: nn.Module, folds: Sequence[Fold] = ()) -> nn.Module:
    """A copy in which nothing stands where the norms stood.

    Its weights are smaller: values that grow, for want of a norm, to infinities take longer to compute with.
    A layer with a norm that folds gets a bias, as it has one afterwards.
    """
    made = copy.deepcopy(module)
    for name, part in list(made.named_modules()):
        if isinstance(part, NORMS):
            _put(made, name, nn.Identity())
    for parameter in made.parameters():
        parameter.mul_(SHRINK if parameter.dim() > 1 else 1)
    for name, _, _ in folds:
        linear = made.get_submodule(name)
        assert isinstance(linear, nn.Linear | nn.Conv2d | nn.ConvTranspose2d)
        if linear.bias is None:
            width = linear.out_features if isinstance(linear, nn.Linear) else linear.out_channels
            linear.bias = nn.Parameter(torch.full((width,), 0.1))
    return made.eval()


def apart(model: bytes) -> bytes:
    """Write Sum for each Add in front of a norm.

    At ORT_ENABLE_ALL onnxruntime joins Add and LayerNormalization, which is slower on CPU; Sum it leaves.
    """
    proto = onnx.load_from_string(model)
    makers = {name: node for node in proto.graph.node for name in node.output}
    for node in proto.graph.node:
        maker = makers.get(node.input[0]) if node.op_type.endswith("LayerNormalization") else None
        if maker is not None and maker.op_type == "Add":
            maker.op_type = "Sum"
    data: bytes = proto.SerializeToString()
    return data


@torch.no_grad()
def fold(linear: nn.Module, norm: nn.Module, start: int = 0) -> None:
    """Put scale * (x - mean) / sqrt(var + eps) + bias into the weights in front of it.

    start: of the norm's channels the first that the layer gives, where a norm reads a concatenation.
    """
    assert isinstance(linear, nn.Linear | nn.Conv2d | nn.ConvTranspose2d)
    assert isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    width = linear.out_features if isinstance(linear, nn.Linear) else linear.out_channels
    own = slice(start, start + width)
    scale = (norm.weight / torch.sqrt(norm.running_var + norm.eps))[own]
    bias = torch.zeros_like(scale) if linear.bias is None else linear.bias
    if isinstance(linear, nn.ConvTranspose2d):  # [inner, outer / groups, height, width]
        inner, outer = linear.weight.shape[:2]
        by_row = scale.view(linear.groups, 1, outer).expand(-1, inner // linear.groups, -1)
        linear.weight *= by_row.reshape(inner, outer, 1, 1)
    else:
        linear.weight *= scale.view(-1, *[1] * (linear.weight.dim() - 1))
    linear.bias = nn.Parameter((bias - norm.running_mean[own]) * scale + norm.bias[own])


def _put(module: nn.Module, path: str, part: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(module.get_submodule(parent), name, part)
