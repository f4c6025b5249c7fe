"""One small model for each family of normalization: the norm between two matrix products or convolutions.

A reader who wants to see what a family looks like before and after runs `normfuse` on one of these.
"""

from __future__ import annotations

import numpy as np
import onnx
from sketch import Sketch
from spellings import LAYER_NORM, layer_norm, rms_norm

WIDTH = 16
TOKENS = f"float[batch, sequence, {WIDTH}] x"
IMAGE = f"float[batch, {WIDTH}, height, width] x"


def norm_of_tokens(name: str, spelling: str) -> onnx.ModelProto:
    """MatMul, a LayerNorm over the last axis, MatMul."""
    sketch = Sketch(name)
    _matmul(sketch, "x", "hidden")
    layer_norm(sketch, spelling, "hidden", "normed", WIDTH)
    _matmul(sketch, "normed", "y")
    return sketch.model(TOKENS, f"float[batch, sequence, {WIDTH}] y")


def rmsnorm() -> onnx.ModelProto:
    """MatMul, an RMSNorm in the form of Llama, MatMul."""
    sketch = Sketch("rmsnorm")
    _matmul(sketch, "x", "hidden")
    rms_norm(sketch, "llama", "hidden", "normed", WIDTH)
    _matmul(sketch, "normed", "y")
    return sketch.model(TOKENS, f"float[batch, sequence, {WIDTH}] y")


def per_head_norm() -> onnx.ModelProto:
    """Query and key normalized over the width of one head, before they meet (Qwen 3, Gemma 3)."""
    sketch = Sketch("per_head_norm")
    sketch.constant("heads", [0, 0, 4, WIDTH // 4], np.int64)
    for side in ("query", "key"):
        _matmul(sketch, "x", f"{side}_flat")
        sketch.add(f"{side}_heads = Reshape({side}_flat, heads)")
        rms_norm(sketch, "div", f"{side}_heads", f"{side}_normed", WIDTH // 4)
    sketch.add("""
        query = Transpose<perm = [0, 2, 1, 3]>(query_normed)
        key = Transpose<perm = [0, 2, 3, 1]>(key_normed)
        y = MatMul(query, key)""")
    return sketch.model(TOKENS, "float[batch, 4, sequence, sequence] y")


def modulated_norm() -> onnx.ModelProto:
    """adaLN (DiT): a LayerNorm without an affine, scaled and shifted by values computed at run time."""
    sketch = Sketch("modulated_norm")
    sketch.normal("to_scale", WIDTH, WIDTH)
    sketch.normal("to_shift", WIDTH, WIDTH)
    sketch.constant("one", 1.0)
    sketch.constant("two", 2.0)
    sketch.constant("eps", 1e-6)
    sketch.constant("middle", [1], np.int64)
    sketch.add("""
        mean = ReduceMean<axes = [-1]>(x)
        d = Sub(x, mean)
        square = Pow(d, two)
        variance = ReduceMean<axes = [-1]>(square)
        shifted = Add(variance, eps)
        std = Sqrt(shifted)
        unit = Div(d, std)
        scale_flat = MatMul(condition, to_scale)
        scale_row = Unsqueeze(scale_flat, middle)
        scale = Add(scale_row, one)
        shift_flat = MatMul(condition, to_shift)
        shift = Unsqueeze(shift_flat, middle)
        scaled = Mul(unit, scale)
        y = Add(scaled, shift)""")
    return sketch.model(f"{TOKENS}, float[batch, {WIDTH}] condition", f"float[batch, sequence, {WIDTH}] y")


def channels_first() -> onnx.ModelProto:
    """ConvNeXt's LayerNorm over the channels of an image, axis 1, spelled out in torch."""
    sketch = Sketch("channels_first")
    sketch.normal("gamma", WIDTH, 1, 1, mean=1.0)
    sketch.normal("beta", WIDTH, 1, 1)
    sketch.constant("eps", 1e-6)
    sketch.constant("two", 2.0)
    _conv(sketch, "x", "hidden")
    sketch.add("""
        mean = ReduceMean<axes = [1]>(hidden)
        d = Sub(hidden, mean)
        square = Pow(d, two)
        variance = ReduceMean<axes = [1]>(square)
        shifted = Add(variance, eps)
        std = Sqrt(shifted)
        unit = Div(d, std)
        scaled = Mul(unit, gamma)
        y = Add(scaled, beta)""")
    return sketch.model(IMAGE, f"float[batch, {WIDTH}, height, width] y")


def group_norm() -> onnx.ModelProto:
    """torch.nn.GroupNorm as torch exports it: an InstanceNormalization of groups, then the affine."""
    sketch = Sketch("group_norm")
    sketch.constant("groups", [0, 4, -1], np.int64)
    sketch.constant("ones", np.ones(4, np.float32))
    sketch.constant("zeros", np.zeros(4, np.float32))
    sketch.normal("gamma", WIDTH, 1, 1, mean=1.0)
    sketch.normal("beta", WIDTH, 1, 1)
    _conv(sketch, "x", "hidden")
    sketch.add("""
        grouped = Reshape(hidden, groups)
        unit_grouped = InstanceNormalization<epsilon = 1e-5>(grouped, ones, zeros)
        shape = Shape(hidden)
        unit = Reshape(unit_grouped, shape)
        scaled = Mul(unit, gamma)
        y = Add(scaled, beta)""")
    return sketch.model(IMAGE, f"float[batch, {WIDTH}, height, width] y")


def instance_norm() -> onnx.ModelProto:
    """InstanceNorm in small operators: statistics of each channel of each image."""
    sketch = Sketch("instance_norm")
    sketch.normal("gamma", WIDTH, 1, 1, mean=1.0)
    sketch.normal("beta", WIDTH, 1, 1)
    sketch.constant("eps", 1e-5)
    _conv(sketch, "x", "hidden")
    sketch.add("""
        mean = ReduceMean<axes = [2, 3]>(hidden)
        d = Sub(hidden, mean)
        square = Mul(d, d)
        variance = ReduceMean<axes = [2, 3]>(square)
        shifted = Add(variance, eps)
        std = Sqrt(shifted)
        unit = Div(d, std)
        scaled = Mul(unit, gamma)
        y = Add(scaled, beta)""")
    return sketch.model(IMAGE, f"float[batch, {WIDTH}, height, width] y")


def l2_normalize() -> onnx.ModelProto:
    """torch.nn.functional.normalize: x / max(|x|, 1e-12) over the last axis."""
    sketch = Sketch("l2_normalize")
    sketch.constant("floor", 1e-12)
    _matmul(sketch, "x", "hidden")
    sketch.add("""
        length = ReduceL2<axes = [-1]>(hidden)
        clamped = Max(length, floor)
        y = Div(hidden, clamped)""")
    return sketch.model(TOKENS, f"float[batch, sequence, {WIDTH}] y")


def eps_outside() -> onnx.ModelProto:
    """The LayerNorm of the Annotated Transformer: (x - mean) / (std + eps), with Bessel's correction."""
    sketch = Sketch("eps_outside")
    sketch.normal("gamma", WIDTH, mean=1.0)
    sketch.normal("beta", WIDTH)
    sketch.constant("eps", 1e-6)
    sketch.constant("bessel", float(WIDTH - 1))
    sketch.add("""
        mean = ReduceMean<axes = [-1]>(x)
        d = Sub(x, mean)
        squares = ReduceSumSquare<axes = [-1]>(d)
        variance = Div(squares, bessel)
        std = Sqrt(variance)
        divisor = Add(std, eps)
        unit = Div(d, divisor)
        scaled = Mul(unit, gamma)
        y = Add(scaled, beta)""")
    return sketch.model(TOKENS, f"float[batch, sequence, {WIDTH}] y")


def response_norm() -> onnx.ModelProto:
    """ConvNeXt-V2's global response normalization: x + gamma * x * |x_c| / mean_c |x_c| + beta."""
    sketch = Sketch("response_norm")
    sketch.normal("gamma", WIDTH, 1, 1)
    sketch.normal("beta", WIDTH, 1, 1)
    sketch.constant("eps", 1e-6)
    sketch.add("""
        length = ReduceL2<axes = [2, 3]>(x)
        mean = ReduceMean<axes = [1]>(length)
        shifted = Add(mean, eps)
        response = Div(length, shifted)
        answered = Mul(x, response)
        scaled = Mul(answered, gamma)
        biased = Add(scaled, beta)
        y = Add(biased, x)""")
    return sketch.model(IMAGE, f"float[batch, {WIDTH}, height, width] y")


def conv_bn() -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, twice; the second convolution is depthwise."""
    sketch = Sketch("conv_bn")
    _conv(sketch, "x", "first")
    batch_norm(sketch, "first", "first_normed", WIDTH)
    sketch.add("first_active = Relu(first_normed)")
    sketch.normal("depthwise", WIDTH, 1, 3, 3)
    sketch.add(f"second = Conv<pads = [1, 1, 1, 1], group = {WIDTH}>(first_active, depthwise)")
    batch_norm(sketch, "second", "second_normed", WIDTH)
    sketch.add("y = Relu(second_normed)")
    return sketch.model(IMAGE, f"float[batch, {WIDTH}, height, width] y")


def gemm_bn() -> onnx.ModelProto:
    """Gemm with a transposed weight and a factor, BatchNormalization, Relu."""
    sketch = Sketch("gemm_bn")
    sketch.normal("weight", 24, WIDTH)
    sketch.normal("bias", 24)
    sketch.add("hidden = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, weight, bias)")
    batch_norm(sketch, "hidden", "normed", 24)
    sketch.add("y = Relu(normed)")
    return sketch.model(f"float[batch, {WIDTH}] x", "float[batch, 24] y")


def batch_norm(sketch: Sketch, x: str, y: str, channels: int) -> None:
    """Write one BatchNormalization in inference mode, with statistics that are far from 0 and 1."""
    sketch.normal(f"{y}_scale", channels, mean=1.0)
    sketch.normal(f"{y}_bias", channels)
    sketch.normal(f"{y}_mean", channels)
    sketch.positive(f"{y}_var", channels)
    sketch.add(f"{y} = BatchNormalization<epsilon = 1e-5>({x}, {y}_scale, {y}_bias, {y}_mean, {y}_var)")


def _matmul(sketch: Sketch, x: str, y: str) -> None:
    sketch.normal(f"{y}_weight", WIDTH, WIDTH)
    sketch.add(f"{y} = MatMul({x}, {y}_weight)")


def _conv(sketch: Sketch, x: str, y: str) -> None:
    sketch.normal(f"{y}_weight", WIDTH, WIDTH, 3, 3, spread=0.1)
    sketch.add(f"{y} = Conv<pads = [1, 1, 1, 1]>({x}, {y}_weight)")


SPELLED = {f"layernorm_{spelling}": spelling for spelling in LAYER_NORM}
