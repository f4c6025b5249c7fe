"""Sizes that a graph asks of a dynamic dimension are read off the constants that the axis meets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_models import model

from normfuse.parity.demands import Window, demanded
from normfuse.parity.model import Model
from normfuse.parity.symbols import read_shapes

BANK = {
    "kernel": np.zeros((4, 5, 3, 3)), "pair": np.zeros((4, 5, 3)), "table": np.zeros((5, 7)),
    "row": np.zeros(6), "pixel": np.zeros((1, 9, 1)), "channel": np.zeros(8),
}  # fmt: skip


def asked(inputs: str, body: str) -> dict[str, int]:
    constants = {k: v.astype(np.float32) for k, v in BANK.items() if k in body}
    proto = model(inputs, "float[P, Q, R] y", body, constants)
    return demanded(Model(Path("m.onnx"), proto), read_shapes({i.name: i.type for i in proto.graph.input}))


@pytest.mark.parametrize(
    ("inputs", "body", "sizes"),
    [
        ("float[N, C, H, W] x", "y = Conv(x, kernel)", {"C": 5}),
        ("float[N, C, H, W] x", "y = Conv<group = 2>(x, kernel)", {"C": 10}),
        ("float[B, S, D] x", "y = MatMul(x, table)", {"D": 5}),
        ("float[B, D] x", "y = Gemm(x, table)", {"D": 5}),
        ("float[B, D] x", "y = Gemm<transB = 1>(x, table)", {"D": 7}),
        ("float[B, S, D] x", "a = Tanh(x) y = Add(a, row)", {"D": 6}),
        ("float[B, S, D] x", "y = Mul(pixel, x)", {"S": 9}),
        ("float[B, S, D] x", "t = Transpose<perm = [0, 2, 1]>(x) y = Add(t, row)", {"S": 6}),
        ("float[N, C, H] x", "y = BatchNormalization(x, channel, channel, channel, channel)", {"C": 8}),
        ("float[N, 5, S] x", "c = Conv<strides = [2], pads = [1, 1]>(x, pair) y = Add(c, row)", {"S": 12}),
        ("float[N, C, S] x", "c = MaxPool<kernel_shape = [2], strides = [2]>(x) y = Add(c, row)", {"S": 12}),
        ("float[N, C, S] x", "c = Conv(x, pair) y = Add(c, row)", {"C": 5, "S": 8}),
        ("float[N, C, S] x", "y = Add(x, x)", {}),
        ("float[N, C, S] x", "r = ReduceMean<axes = [-1]>(x) y = Add(r, row)", {}),
    ],
)  # fmt: skip
def test_the_nearest_constant_decides(inputs: str, body: str, sizes: dict[str, int]) -> None:
    assert asked(inputs, body) == sizes


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("pads", [0, 1, 4])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(1, 1, 1), (3, 1, 2), (3, 2, 1), (2, 3, 1), (7, 4, 1)]
)
def test_a_window_gives_the_length_that_is_needed(
    kernel: int, stride: int, dilation: int, pads: int, same: bool
) -> None:
    for length in (1, 5, 32):
        size = Window(kernel, stride, dilation, pads, same).needed(length)
        reach = dilation * (kernel - 1) + 1
        made = -(-size // stride) if same else (size + pads - reach) // stride + 1
        assert made == length
