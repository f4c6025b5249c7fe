"""One small model of each family, spelled out, in any float type: what a provider is asked to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from parity_models import model

DTYPES: Mapping[str, Any] = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

_CENTRED = (
    "m = ReduceMean<axes=[{axes}]>({x}) d = Sub({x}, m) q = Mul(d, d) v = ReduceMean<axes=[{axes}]>(q) "
)
_SCALED = "ve = Add(v, e) r = Sqrt(ve) n = Div({x}, r) "
_LAYER_NORM = _CENTRED.replace("{axes}", "-1") + _SCALED.replace("{x}", "d") + "k = Mul(n, g) {y} = Add(k, b)"
_RMS_NORM = "q = Mul({x}, {x}) v = ReduceMean<axes=[-1]>(q) " + _SCALED + "{y} = Mul(n, g)"
_TOKENS, _IMAGE = "[B, S, {width}]", "[N, {width}, {side}, {side}]"
# None stands alone: a provider that compiles subgraphs may leave a lone node to the CPU.
BODIES: Mapping[str, tuple[str, str]] = {
    "layer_norm": (_TOKENS, f"h = MatMul(x, w) {_LAYER_NORM} y = MatMul(z, w)".format(x="h", y="z")),
    "rms_norm": (_TOKENS, f"h = MatMul(x, w) {_RMS_NORM} y = MatMul(z, w)".format(x="h", y="z")),
    "skip_layer_norm": (
        _TOKENS,
        f"h = MatMul(x, w) t = Add(x, h) {_LAYER_NORM} y = MatMul(z, w)".format(x="t", y="z"),
    ),
    "skip_rms_norm": (
        _TOKENS,
        f"h = MatMul(x, w) t = Add(x, h) {_RMS_NORM} u = MatMul(z, w) y = Add(t, u)".format(x="t", y="z"),
    ),
    "group_norm": (
        _IMAGE,
        "h = Neg(x) f = Constant<value_ints=[0, GROUPS, -1]>() i = Reshape(h, f) "
        f"{_CENTRED.format(x='i', axes='-1')} {_SCALED.format(x='d')} s = Shape(h) o = Reshape(n, s) "
        "k = Mul(o, gc) y = Add(k, bc)",
    ),
    "instance_norm": (
        _IMAGE,
        f"h = Neg(x) {_CENTRED.format(x='h', axes='2, 3')} {_SCALED.format(x='d')} "
        "k = Mul(n, gc) y = Add(k, bc)",
    ),
    "batch_norm": (
        _IMAGE,
        "h = Conv<pads=[1, 1, 1, 1]>(x, c) k = BatchNormalization<epsilon=1e-3>(h, sc, sb, sm, sv) "
        "y = Relu(k)",
    ),
    "affine": (_TOKENS, "h = MatMul(x, w) k = Mul(h, g) y = Add(k, b)"),
}

# Conv takes no bfloat16 before opset 22.
CASES = [(n, t) for t in DTYPES for n in BODIES if (n, t) != ("batch_norm", "bfloat16")]


@dataclass(frozen=True)
class Size:
    """Width of a token or channels of an image, side of an image, groups."""

    width: int = 16
    side: int = 6
    groups: int = 2


SMALL = Size()


def family(name: str, dtype: str = "float", size: Size = SMALL) -> onnx.ModelProto:
    """A model of one family; its constants are of the type as well."""
    shape, body = BODIES[name]
    body = body.replace("GROUPS", str(size.groups))
    shape = shape.format(width=size.width, side=size.side)
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    constants = {
        key: np.asarray(value).astype(DTYPES[dtype])
        for key, value in _constants(size.width).items()
        if key in words
    }
    return model(f"{dtype}{shape} x", f"{dtype}{shape} y", body, constants)


def _constants(width: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    per_channel = (width, 1, 1)
    return {
        "w": rng.normal(size=(width, width)) / width**0.5,
        "c": rng.normal(size=(width, width, 3, 3)) / (9 * width) ** 0.5,
        "e": np.array(1e-3),
        "g": 1 + rng.normal(size=width) * 0.3,
        "b": rng.normal(size=width) * 0.5,
        "gc": 1 + rng.normal(size=per_channel) * 0.3,
        "bc": rng.normal(size=per_channel) * 0.5,
        "sc": 1 + rng.normal(size=width) * 0.3,
        "sb": rng.normal(size=width) * 0.5,
        "sm": rng.normal(size=width) * 0.5,
        "sv": rng.uniform(0.5, 2, width),
    }
