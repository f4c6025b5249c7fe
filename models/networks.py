"""The two networks that README and the tests use, and one block of the encoder alone."""

from __future__ import annotations

import numpy as np
import onnx
from families import batch_norm
from sketch import Sketch
from spellings import layer_norm

WIDTH, HEADS, INNER, VOCABULARY, POSITIONS = 32, 4, 64, 96, 64


def encoder() -> onnx.ModelProto:
    """A post-LN transformer encoder of two layers, in the manner of BERT: five LayerNorms, five spellings.

    input_ids and attention_mask are int64 [batch, sequence]; at most 64 positions.
    """
    sketch = Sketch("encoder")
    _embeddings(sketch)
    layer_norm(sketch, "pow_div", "embedded", "hidden_0", WIDTH, eps=1e-12)
    _mask(sketch)
    _block(sketch, "layer0", "hidden_0", "hidden_1", ("mul_reciprocal", "two_subs_pow"))
    _block(sketch, "layer1", "hidden_1", "last_hidden_state", ("mean_of_squares", "scale_and_shift"))
    return sketch.model(
        "int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask",
        f"float[batch, sequence, {WIDTH}] last_hidden_state",
    )


def encoder_block() -> onnx.ModelProto:
    """One post-LN block: attention, residual, LayerNorm, feed-forward, residual, LayerNorm."""
    sketch = Sketch("encoder_block")
    _mask(sketch)
    _block(sketch, "layer0", "x", "y", ("pow_div", "pow_div"))
    return sketch.model(
        f"float[batch, sequence, {WIDTH}] x, int64[batch, sequence] attention_mask",
        f"float[batch, sequence, {WIDTH}] y",
    )


def convnet() -> onnx.ModelProto:
    """Conv-BN-Relu with a residual, a depthwise convolution, and a head of Gemm and BatchNormalization."""
    sketch = Sketch("convnet")
    _conv(sketch, "image", "stem", 3, 16, stride=2)
    _conv(sketch, "stem", "depthwise", 16, 16, group=16)
    _conv(sketch, "depthwise", "pointwise", 16, 16, kernel=1, active=False)
    sketch.add("joined_sum = Add(stem, pointwise)\njoined = Relu(joined_sum)")
    _conv(sketch, "joined", "last", 16, 32, stride=2)
    sketch.add("pooled = GlobalAveragePool(last)\nfeatures = Flatten(pooled)")
    _gemm(sketch, "features", "head", 24, 32)
    batch_norm(sketch, "head", "head_normed", 24)
    sketch.add("head_active = Relu(head_normed)")
    _gemm(sketch, "head_active", "logits", 10, 24)
    return sketch.model("float[batch, 3, 32, 32] image", "float[batch, 10] logits")


def _embeddings(sketch: Sketch) -> None:
    """A row for each token, and one for each position: 0, 1, … up to the length of the sequence."""
    sketch.normal("token_table", VOCABULARY, WIDTH)
    sketch.normal("position_table", POSITIONS, WIDTH)
    sketch.constant("first", 0, np.int64)
    sketch.constant("step", 1, np.int64)
    sketch.add("""
        shape = Shape(input_ids)
        length = Gather(shape, step)
        positions = Range(first, length, step)
        position_rows = Gather(position_table, positions)
        token_rows = Gather(token_table, input_ids)
        embedded = Add(token_rows, position_rows)""")


def _mask(sketch: Sketch) -> None:
    """0 where a token may be looked at, -10000 where it may not."""
    sketch.constant("unity", 1.0)
    sketch.constant("very_small", -10000.0)
    sketch.constant("mask_axes", [1, 2], np.int64)
    sketch.add("""
        mask_float = Cast<to = 1>(attention_mask)
        mask_wide = Unsqueeze(mask_float, mask_axes)
        mask_inverse = Sub(unity, mask_wide)
        mask = Mul(mask_inverse, very_small)""")


def _block(sketch: Sketch, name: str, x: str, y: str, spellings: tuple[str, str]) -> None:
    """Two residual branches, each behind its sum normalized."""
    attended = _attention(sketch, name, x)
    sketch.add(f"{name}_residual = Add({attended}, {x})")
    middle = layer_norm(sketch, spellings[0], f"{name}_residual", f"{name}_middle", WIDTH)
    _linear(sketch, middle, f"{name}_inner", WIDTH, INNER)
    sketch.add(f"{name}_active = Relu({name}_inner)")
    _linear(sketch, f"{name}_active", f"{name}_outer", INNER, WIDTH)
    sketch.add(f"{name}_residual2 = Add({name}_outer, {middle})")
    layer_norm(sketch, spellings[1], f"{name}_residual2", y, WIDTH)


def _attention(sketch: Sketch, name: str, x: str) -> str:
    """Scaled dot-product attention with four heads; returns the name of its output."""
    sketch.constant("split_heads", [0, 0, HEADS, WIDTH // HEADS], np.int64)
    sketch.constant("join_heads", [0, 0, WIDTH], np.int64)
    sketch.constant("root", float(np.sqrt(WIDTH / HEADS)))
    for side, order in (("query", "0, 2, 1, 3"), ("key", "0, 2, 3, 1"), ("value", "0, 2, 1, 3")):
        _linear(sketch, x, f"{name}_{side}", WIDTH, WIDTH)
        sketch.add(f"""
            {name}_{side}_heads = Reshape({name}_{side}, split_heads)
            {name}_{side}_turned = Transpose<perm = [{order}]>({name}_{side}_heads)""")
    sketch.add(f"""
        {name}_dots = MatMul({name}_query_turned, {name}_key_turned)
        {name}_scaled = Div({name}_dots, root)
        {name}_masked = Add({name}_scaled, mask)
        {name}_weights = Softmax<axis = -1>({name}_masked)
        {name}_mixed = MatMul({name}_weights, {name}_value_turned)
        {name}_back = Transpose<perm = [0, 2, 1, 3]>({name}_mixed)
        {name}_joined = Reshape({name}_back, join_heads)""")
    _linear(sketch, f"{name}_joined", f"{name}_attended", WIDTH, WIDTH)
    return f"{name}_attended"


def _linear(sketch: Sketch, x: str, y: str, inner: int, outer: int) -> None:
    sketch.normal(f"{y}_weight", inner, outer, spread=inner**-0.5)
    sketch.normal(f"{y}_bias", outer)
    sketch.add(f"{y}_product = MatMul({x}, {y}_weight)\n{y} = Add({y}_product, {y}_bias)")


def _gemm(sketch: Sketch, x: str, y: str, outer: int, inner: int) -> None:
    sketch.normal(f"{y}_weight", outer, inner, spread=inner**-0.5)
    sketch.normal(f"{y}_bias", outer)
    sketch.add(f"{y} = Gemm<transB = 1>({x}, {y}_weight, {y}_bias)")


def _conv(
    sketch: Sketch,
    x: str,
    y: str,
    inner: int,
    outer: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    group: int = 1,
    active: bool = True,
) -> None:
    """Conv without a bias, BatchNormalization and, if `active`, Relu."""
    fan_in = inner // group * kernel * kernel
    sketch.normal(f"{y}_weight", outer, inner // group, kernel, kernel, spread=fan_in**-0.5)
    pad = kernel // 2
    sketch.add(
        f"{y}_conv = Conv<pads = [{pad}, {pad}, {pad}, {pad}], strides = [{stride}, {stride}], "
        f"group = {group}>({x}, {y}_weight)"
    )
    batch_norm(sketch, f"{y}_conv", f"{y}_normed" if active else y, outer)
    if active:
        sketch.add(f"{y} = Relu({y}_normed)")
