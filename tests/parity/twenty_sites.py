"""One small model with sites of every family, of which each target rewrites twenty.

    tokens [B, S, 32] -> LayerNorm, RMSNorm, L2, half precision, sigma + eps, residual, MatMul folds
    image  [N, 8, H, W] -> InstanceNorm, GroupNorm, channels-first, LRN, Conv and ConvTranspose folds,
                           a lone affine; the mean of its pixels -> Gemm folds

A site is named after the value that it computes. An activation behind each takes its numbers back to around
1. Weights are neither 0 nor 1, differ from channel to channel, and are the same at every call.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper, parser

WIDTH, CHANNELS = 32, 8
EVERYWHERE = (
    "layer", "layer_behind", "rms", "l2", "half", "product", "before_product",
    "conv", "conv_bias", "depthwise", "transposed", "before_conv", "gemm", "before_gemm",
    "instance", "group", "channels_first", "response",
)  # fmt: skip
BY_TARGET = {
    "ort-cpu": (*EVERYWHERE, "residual", "lone_affine"),
    "onnx": (*EVERYWHERE, "deviation", "bessel"),
}

TOKENS = """
    {layer_norm:layer:x:-1}
    t1 = Tanh(layer)
    product_raw = MatMul(t1, product_w[32,32])
    product_scaled = Mul(product_raw, product_g[32])
    product = Add(product_scaled, product_b[32])
    t2 = Tanh(product)
    {rms_norm:rms:t2:-1}
    t3 = Relu(rms)
    scaled = Mul(t3, scaled_g[32])
    shifted = Add(scaled, scaled_b[32])
    before_product = MatMul(shifted, before_product_w[32,32])
    t4 = Tanh(before_product)
    length = ReduceL2<axes = [-1]>(t4)
    l2 = Div(t4, length)
    t5 = Tanh(l2)
    residual = Add(t4, t5)
    {layer_norm:layer_behind:residual:-1}
    t6 = Tanh(layer_behind)
    half_in = Cast<to = 10>(t6)
    half_wide = Cast<to = 1>(half_in)
    {layer_norm:half_norm:half_wide:-1}
    half = Cast<to = 10>(half_norm)
    half_out = Cast<to = 1>(half)
    t7 = Tanh(half_out)
    {deviation:deviation:t7:ReduceMean}
    t8 = Tanh(deviation)
    {deviation:bessel:t8:ReduceSum}
    tokens = Tanh(bessel)
"""
IMAGE = """
    conv_raw = Conv<pads = [1, 1, 1, 1]>(i, conv_w[8,8,3,3])
    {batch_norm:conv:conv_raw}
    a1 = Tanh(conv)
    {layer_norm:instance:a1:2, 3}
    a2 = Tanh(instance)
    depthwise_raw = Conv<pads = [1, 1, 1, 1], group = 8>(a2, depthwise_w[8,1,3,3], depthwise_c[8])
    {batch_norm:depthwise:depthwise_raw}
    a3 = Tanh(depthwise)
    grouped = Reshape(a3, groups)
    {core:group_core:grouped:-1}
    group_shape = Shape(a3)
    group_back = Reshape(group_core, group_shape)
    {affine:group:group_back}
    a4 = Tanh(group)
    transposed_raw = ConvTranspose<strides = [2, 2]>(a4, transposed_w[8,8,2,2], transposed_c[8])
    {batch_norm:transposed:transposed_raw}
    a5 = Tanh(transposed)
    {layer_norm:channels_first:a5:1}
    a6 = Tanh(channels_first)
    {batch_norm:before_conv_normed:a6}
    before_conv = Conv(before_conv_normed, before_conv_w[8,8,1,1], before_conv_c[8])
    a7 = Tanh(before_conv)
    response_square = Mul(a7, a7)
    response_view = Unsqueeze(response_square, one)
    response_padded = Pad(response_view, response_pads)
    response_mean = AveragePool<kernel_shape = [5, 1, 1], strides = [1, 1, 1]>(response_padded)
    response_flat = Squeeze(response_mean, one)
    response_small = Mul(response_flat, alpha)
    response_sum = Add(response_small, k)
    response_power = Pow(response_sum, beta)
    response = Div(a7, response_power)
    a8 = Tanh(response)
    conv_bias_raw = Conv<pads = [1, 1, 1, 1]>(a8, conv_bias_w[8,8,3,3], conv_bias_c[8])
    {affine:conv_bias:conv_bias_raw}
    a9 = Relu(conv_bias)
    {affine:lone_affine:a9}
    a10 = Tanh(lone_affine)
    pooled = GlobalAveragePool(a10)
    flat = Flatten(pooled)
    gemm_raw = Gemm<transB = 1, alpha = 0.5>(flat, gemm_w[8,8], gemm_c[8])
    {batch_norm:gemm:gemm_raw}
    f1 = Tanh(gemm)
    {batch_norm:before_gemm_normed:f1}
    before_gemm = Gemm(before_gemm_normed, before_gemm_w[8,8], before_gemm_c[8])
    features = Tanh(before_gemm)
"""


def twenty_sites() -> onnx.ModelProto:
    """The model, at opset 17."""
    sketch = _Sketch()
    for line in (TOKENS + IMAGE).strip().splitlines():
        sketch.write(line.strip())
    body = "\n".join(sketch.lines)
    head = '<ir_version: 8, opset_import: ["": 17]> twenty (float[B, S, 32] x, float[N, 8, H, W] i)'
    proto = parser.parse_model(f"{head} => (float[B, S, 32] tokens, float[N, 8] features) {{ {body} }}")
    for node in proto.graph.node:
        node.name = f"node of {node.output[0]}"
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in sketch.constants.items())
    onnx.checker.check_model(proto, full_check=True)
    return proto


class _Sketch:
    """The lines of the model, with its templates filled in, and its constants."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, np.ndarray] = {
            "eps": np.float32(1e-5), "outside": np.float32(1e-3), "less_one": np.float32(WIDTH - 1),
            "alpha": np.float32(1e-4), "k": np.float32(2), "beta": np.float32(0.75),
            "one": np.array([1]), "last": np.array([-1]), "groups": np.array([0, 4, -1]),
            "response_pads": np.array([0, 0, 2, 0, 0, 0, 0, 2, 0, 0]),
        }  # fmt: skip

    def write(self, line: str) -> None:
        """A node, or `{template:output:operands}`."""
        if line.startswith("{"):
            name, *operands = line.strip("{}").split(":")
            getattr(self, name)(*operands)
            return
        while "[" in line.partition("(")[2]:  # a constant is written with its shape where it is read
            before, _, rest = line.rpartition("[")
            name = before.rpartition("(")[2].rpartition(", ")[2]
            sizes, _, after = rest.partition("]")
            self.weight(name, [int(size) for size in sizes.split(",")])
            line = before + after
        self.lines.append(line)

    def weight(self, name: str, shape: Sequence[int]) -> str:
        """A weight of its own, the same whatever else there is; scales and variances are positive."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        positive = name.endswith(("_g", "_v"))
        values = rng.uniform(0.5, 2, shape) if positive else rng.normal(size=shape) * 0.4
        self.constants[name] = values.astype(np.float16).astype(np.float32)  # half precision holds it too
        return name

    def affine(self, y: str, x: str) -> None:
        """A scale and a shift for each channel."""
        self.write(f"{y}_scaled = Mul({x}, {y}_g[8,1,1])")
        self.write(f"{y} = Add({y}_scaled, {y}_b[8,1,1])")

    def core(self, y: str, x: str, axes: str) -> None:
        """(x - mean) / sqrt(var + eps)."""
        self.lines += [
            f"{y}_mean = ReduceMean<axes = [{axes}]>({x})",
            f"{y}_d = Sub({x}, {y}_mean)",
            f"{y}_square = Mul({y}_d, {y}_d)",
            f"{y}_var = ReduceMean<axes = [{axes}]>({y}_square)",
            f"{y}_shifted = Add({y}_var, eps)",
            f"{y}_std = Sqrt({y}_shifted)",
            f"{y} = Div({y}_d, {y}_std)",
        ]

    def layer_norm(self, y: str, x: str, axes: str) -> None:
        """The same with an affine along the last axis, or along the channels of an image."""
        self.core(f"{y}_unit", x, axes)
        if axes != "-1":
            self.affine(y, f"{y}_unit")
            return
        self.write(f"{y}_scaled = Mul({y}_unit, {y}_g[32])")
        self.write(f"{y} = Add({y}_scaled, {y}_b[32])")

    def rms_norm(self, y: str, x: str, axes: str) -> None:
        """x / sqrt(mean(x^2) + eps), a scale and a bias."""
        self.lines += [
            f"{y}_square = Mul({x}, {x})",
            f"{y}_power = ReduceMean<axes = [{axes}]>({y}_square)",
            f"{y}_shifted = Add({y}_power, eps)",
            f"{y}_root = Sqrt({y}_shifted)",
            f"{y}_unit = Div({x}, {y}_root)",
        ]
        self.write(f"{y}_scaled = Mul({y}_unit, {y}_g[32])")
        self.write(f"{y} = Add({y}_scaled, {y}_b[32])")

    def deviation(self, y: str, x: str, reduce: str) -> None:
        """(x - mean) / (std + eps); with ReduceSum by Bessel's correction."""
        bessel = reduce == "ReduceSum"
        self.lines += [
            f"{y}_mean = ReduceMean<axes = [-1]>({x})",
            f"{y}_d = Sub({x}, {y}_mean)",
            f"{y}_square = Mul({y}_d, {y}_d)",
            f"{y}_raw = ReduceSum({y}_square, last)"
            if bessel
            else f"{y}_var = ReduceMean<axes = [-1]>({y}_square)",
            *([f"{y}_var = Div({y}_raw, less_one)"] if bessel else []),
            f"{y}_std = Sqrt({y}_var)",
            f"{y}_divisor = Add({y}_std, outside)",
            f"{y}_unit = Div({y}_d, {y}_divisor)",
        ]
        self.write(f"{y}_scaled = Mul({y}_unit, {y}_g[32])")
        self.write(f"{y} = Add({y}_scaled, {y}_b[32])")

    def batch_norm(self, y: str, x: str) -> None:
        """BatchNormalization in inference."""
        stored = ", ".join(f"{y}_{part}[8]" for part in "gbmv")
        self.write(f"{y} = BatchNormalization<epsilon = 1e-3>({x}, {stored})")
