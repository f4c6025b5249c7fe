"""Each family of normalization as one operator alone, in a spelling that onnxruntime's own optimizer misses.

`why` says what keeps a family from being 1.5 times faster, where something does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from compared.timing import Array

Shape = tuple[int, ...]

TOKENS: tuple[Shape, ...] = ((8, 128, 768), (4, 64, 384), (2, 512, 1024))
IMAGES: tuple[Shape, ...] = ((8, 96, 32, 32), (1, 64, 56, 56), (2, 256, 28, 28))
GROUPS = 8


@dataclass(frozen=True)
class Family:
    """text: the nodes, from x (and r, where a second tensor is read) to y. sizes: the shapes of x.

    second: the shape of r for a shape of x, where it is read.
    """

    name: str
    sizes: tuple[Shape, ...]
    text: str
    why: str = ""
    second: str = ""

    def model(self, shape: Shape) -> bytes:
        """The family spelled out, at opset 18."""
        return build(self.text, self.inputs(shape), shape, constants(shape))

    def inputs(self, shape: Shape) -> dict[str, Array]:
        """Random inputs."""
        random = np.random.default_rng(0)
        sizes = {"x": shape}
        if self.second:
            sizes["r"] = shape if self.second == "like x" else (*shape[:2], 1, 1)
        return {name: random.normal(0.5, 1, size).astype(np.float32) for name, size in sizes.items()}


def copy(shape: Shape) -> bytes:
    """The tensor copied: what any operator that writes a tensor anew has to do at least."""
    x = np.zeros(shape, np.float32)
    return build("y = Identity(x)", {"x": x}, shape, {})


def build(text: str, inputs: Mapping[str, Array], shape: Shape, known: Mapping[str, Array]) -> bytes:
    """A model from nodes in ONNX's text format, with the constants that they read."""
    head = ", ".join(f"float{list(array.shape)} {name}" for name, array in inputs.items())
    nodes = "\n".join(line.strip() for line in text.strip().splitlines())
    source = (
        f'<ir_version: 8, opset_import: ["": 18]> alone ({head}) => (float{list(shape)} y) {{\n{nodes}\n}}'
    )
    model = onnx.parser.parse_model(source)
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in known.items() if name in read
    )
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data


def constants(shape: Shape) -> dict[str, Array]:
    """What the texts below may read: scale and bias, epsilon, axes, shapes."""
    random = np.random.default_rng(1)
    width = shape[-1] if len(shape) == 3 else shape[1]
    scale, bias = random.normal(1, 0.3, width), random.normal(0, 0.3, width)
    if len(shape) == 4:
        scale, bias = scale.reshape(-1, 1, 1), bias.reshape(-1, 1, 1)
    rest = shape[1] // GROUPS * math.prod(shape[2:])
    floats = {"scale": scale, "bias": bias, "eps": 1e-5, "tiny": 1e-12, "one": 1.0,
              "bessel": shape[-1] - 1.0, "alpha": 2e-5, "beta": 0.75}  # fmt: skip
    integers = {"last": [-1], "first": [1], "plane": [2, 3], "batch": [0, 2, 3], 
                "groups": [shape[0], GROUPS, rest], "shape": shape,
                "padded": [0, 0, 2, 0, 0, 0, 0, 2, 0, 0]}  # fmt: skip
    return {
        **{name: np.asarray(value, np.float32) for name, value in floats.items()},
        **{name: np.asarray(value, np.int64) for name, value in integers.items()},
    }


def _layer_norm(axes: str, affine: bool = True) -> str:
    """d * rsqrt(mean(d * d) + eps), over the axes of a name."""
    end = "s = Mul(u, scale)\ny = Add(s, bias)" if affine else ""
    return f"""
        m = ReduceMean(x, {axes})
        d = Sub(x, m)
        q = Mul(d, d)
        v = ReduceMean(q, {axes})
        e = Add(v, eps)
        t = Sqrt(e)
        k = Reciprocal(t)
        {"u" if affine else "y"} = Mul(d, k)
        {end}"""


_GROUPED = re.sub(r"\bx\b", "g", _layer_norm("last", affine=False)).replace("y = ", "n = ")
_MEMORY = "the spelling is short, and memory bounds what is fused: see the ratio to the copy"
_BESIDE = "the factor of each row is one more pass over the tensor, and a bias another"
_TURN = "the axis is not the last: sums across rows, or turning the tensor, cost most of what is saved"
_APART = "onnxruntime has no operator for it; where the batch is 1 it is an InstanceNorm"
_NONE = "onnxruntime has no operator for it"

FAMILIES = (
    Family("LayerNorm", TOKENS, _layer_norm("last")),
    Family("RMSNorm", TOKENS, """
        q = Mul(x, x)
        v = ReduceMean(q, last)
        e = Add(v, eps)
        t = Sqrt(e)
        u = Div(x, t)
        y = Mul(u, scale)"""),
    Family("LayerNorm, channels first", IMAGES, _layer_norm("first"), why=_TURN),
    Family("InstanceNorm", IMAGES, _layer_norm("plane")),
    Family("GroupNorm, in small operators", IMAGES, f"""
        g = Reshape(x, groups)
        {_GROUPED}
        u = Reshape(n, shape)
        s = Mul(u, scale)
        y = Add(s, bias)"""),
    Family("L2 normalization", TOKENS, """
        n = ReduceL2(x, last)
        y = Div(x, n)""", why=_MEMORY),
    Family("L2 normalization, in small operators", TOKENS, """
        q = Mul(x, x)
        v = ReduceSum(q, last)
        n = Sqrt(v)
        y = Div(x, n)""", why=_MEMORY),
    Family("L2 normalization, clamped", TOKENS, """
        n = ReduceL2(x, last)
        c = Max(n, tiny)
        y = Div(x, c)""", why=_NONE),
    Family("L1 normalization", TOKENS, """
        n = ReduceL1(x, last)
        y = Div(x, n)""", why=_NONE),
    Family("LayerNorm, sigma + epsilon", TOKENS, """
        m = ReduceMean(x, last)
        d = Sub(x, m)
        q = ReduceSumSquare(d, last)
        v = Div(q, bessel)
        t = Sqrt(v)
        e = Add(t, eps)
        u = Div(d, e)
        s = Mul(u, scale)
        y = Add(s, bias)""", why=_BESIDE),
    Family("RMSNorm, sigma + epsilon", TOKENS, """
        q = Mul(x, x)
        v = ReduceMean(q, last)
        t = Sqrt(v)
        e = Add(t, eps)
        u = Div(x, e)
        y = Mul(u, scale)""", why=_BESIDE),
    Family("batch statistics", IMAGES, _layer_norm("batch"), why=_APART),
    Family("local response normalization", IMAGES, """
        q = Mul(x, x)
        w = Unsqueeze(q, first)
        p = Pad(w, padded)
        a = AveragePool<kernel_shape = [5, 1, 1], strides = [1, 1, 1]>(p)
        v = Squeeze(a, first)
        k = Mul(v, alpha)
        e = Add(k, one)
        n = Pow(e, beta)
        y = Div(x, n)"""),
    Family("global response normalization", IMAGES, """
        n = ReduceL2(x, plane)
        m = ReduceMean(n, first)
        e = Add(m, eps)
        k = Div(n, e)
        a = Mul(x, k)
        s = Mul(a, scale)
        b = Add(s, bias)
        y = Add(b, x)""", why=_NONE),
    Family("adaptive instance norm", IMAGES, f"""
        {_layer_norm("plane", affine=False).replace("y = ", "n = ")}
        y = Mul(n, r)""", second="of channels"),
    Family("residual add before a LayerNorm", TOKENS, """
        z = Add(x, r)
        y = LayerNormalization<axis = -1>(z, scale, bias)""", second="like x"),
    Family("affine of channels alone", IMAGES, """
        s = Mul(x, scale)
        y = Add(s, bias)"""),
)  # fmt: skip
