"""The faults that test_twenty_sabotages.py plants: every way to rewrite, broken in several ways.

Fault("epsilon x10", "layer", …)        what is wrong, and at which site of twenty_sites.py
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from faults import (
    Fault,
    attribute,
    change_operand,
    dropped_input,
    ends_in,
    of_fold,
    of_guard,
    of_nodes,
    of_norm,
    of_rejoined,
    of_response,
    of_statistics,
    operand,
    swapped,
    through,
    without,
)
from twenty_sites import CHANNELS, WIDTH

from normfuse.graph.facts import Facts

BESSEL = ((WIDTH - 1) / WIDTH) ** 0.5
roll, zero = (lambda a: np.roll(a, 1)), np.zeros_like


def along_another_axis(facts: Facts, nodes: list[ir.Node]) -> None:
    """LayerNormalization over the tokens, its affine where it was."""
    x, gamma, beta = nodes[0].inputs
    first = ir.node("MeanVarianceNormalization", [x], {"axes": [1]})
    second = ir.node("Mul", [first.outputs[0], gamma])
    nodes[:] = [first, second, ir.node("Add", [second.outputs[0], beta])]


def turned_back_wrongly(facts: Facts, nodes: list[ir.Node]) -> None:
    """Height and width swapped by the Transpose behind."""
    attribute("Transpose", "perm", lambda order: (0, 3, 2, 1))(facts, nodes[1:])


def centred(facts: Facts, nodes: list[ir.Node]) -> None:
    """LayerNormalization in the place of SimplifiedLayerNormalization."""
    nodes[0].op_type = "LayerNormalization"


def not_centred(facts: Facts, nodes: list[ir.Node]) -> None:
    """SimplifiedLayerNormalization in the place of LayerNormalization."""
    x, gamma, beta = nodes[0].inputs
    first = ir.node("SimplifiedLayerNormalization", [x, gamma], {"axis": -1, "epsilon": 1e-5})
    nodes[:] = [first, ir.node("Add", [first.outputs[0], beta])]


def scale_of(plan: object) -> np.ndarray:
    """What a fold multiplies by, one number a channel."""
    return np.broadcast_to(plan.leaves[0].affine.scale.reshape(-1), CHANNELS)


def on_the_inputs(plan: object, numbers: object) -> dict[str, np.ndarray]:
    """The scale along the first axis of the weights of a ConvTranspose, which are its inputs."""
    scale = scale_of(plan)
    wrong = numbers.weight / scale[:, None, None] * scale[:, None, None, None]
    return {"weight": wrong.astype(np.float32)}


def without_its_own_bias(plan: object, numbers: object) -> dict[str, np.ndarray]:
    """The shift alone."""
    return {"bias": np.broadcast_to(plan.leaves[0].affine.shift, numbers.bias.shape).astype(np.float32)}


def bias_not_scaled(plan: object, numbers: object) -> dict[str, np.ndarray]:
    """b + shift in the place of b * scale + shift."""
    affine = plan.leaves[0].affine
    own = (numbers.bias - affine.shift) / affine.scale
    return {"bias": (own + affine.shift).astype(np.float32)}


def times(factor: float) -> object:
    """An array as many times as large."""
    return lambda a: np.asarray(a * factor, a.dtype)


def one_channel(a: np.ndarray) -> np.ndarray:
    """One number in a hundred off, in one channel."""
    return np.asarray(a * np.where(np.arange(a.size) == 3, 1.01, 1), a.dtype)


epsilon_10 = of_norm(epsilon=lambda n: n.epsilon * 10)
no_epsilon = of_norm(epsilon=lambda n: 0.0)
FAULTS = (
    Fault("epsilon x10", "layer", epsilon_10),
    Fault("epsilon x0.1", "layer", of_norm(epsilon=lambda n: n.epsilon / 10)),
    Fault("no epsilon", "layer", no_epsilon),
    Fault("another axis", "layer", of_nodes(along_another_axis)),
    Fault("gamma one channel off", "layer", of_nodes(operand("LayerNormalization", 1, roll))),
    Fault("gamma and beta swapped", "layer", of_nodes(swapped("LayerNormalization", 1, 2))),
    Fault("no bias", "layer", of_nodes(dropped_input("LayerNormalization", 2))),
    Fault("not centred", "layer", of_nodes(not_centred)),
    Fault("in bfloat16", "layer", of_nodes(through(ir.DataType.BFLOAT16))),
    Fault("one gamma", "layer", of_nodes(operand("LayerNormalization", 1, one_channel))),
    Fault("epsilon x10", "layer_behind", epsilon_10, "onnx"),
    Fault("epsilon x10", "rms", epsilon_10),
    Fault("epsilon x10", "rms", epsilon_10, "onnx"),
    Fault("centred", "rms", of_nodes(centred)),
    Fault("no bias", "rms", of_nodes(without("Add"))),
    Fault("sum in the place of the mean", "rms", of_norm(scale=lambda n: n.scale / WIDTH**0.5)),
    Fault("sqrt(N) forgotten", "l2", of_norm(scale=lambda n: 1.0)),
    Fault("an epsilon", "l2", of_norm(epsilon=lambda n: 1e-12)),
    Fault("epsilon x10", "half", epsilon_10),
    Fault("gamma one channel off", "half", of_nodes(operand("LayerNormalization", 1, roll))),
    Fault("in bfloat16", "half", of_nodes(through(ir.DataType.BFLOAT16))),
    Fault("last cast missing", "half", of_nodes(ends_in(ir.DataType.FLOAT))),
    Fault("epsilon x10", "instance", epsilon_10),
    Fault("no epsilon", "instance", no_epsilon),
    Fault("gamma one channel off", "instance", of_nodes(operand("InstanceNormalization", 1, roll))),
    Fault("gamma and beta swapped", "instance", of_nodes(swapped("InstanceNormalization", 1, 2))),
    Fault("epsilon x10", "group", epsilon_10),
    Fault("wrong number of groups", "group", of_norm(groups=lambda n: n.groups // 2)),
    Fault("gamma one channel off", "group", of_nodes(operand("BatchNormalization", 1, roll))),
    Fault("no bias", "group", of_nodes(operand("BatchNormalization", 2, zero))),
    Fault("epsilon x10", "channels_first", epsilon_10),
    Fault("mean of one channel less", "channels_first", of_nodes(operand("MatMul", 0, times(8 / 7))),
          then="layer-norm"),
    Fault("no bias", "channels_first", of_nodes(operand("BatchNormalization", 2, zero)), then="layer-norm"),
    Fault("rows and columns swapped", "channels_first", of_nodes(turned_back_wrongly), "onnx"),
    Fault("alpha not divided", "response", of_response(alpha=lambda r: r.alpha * r.size)),
    Fault("another window", "response", of_response(size=lambda r: 3)),
    Fault("another power", "response", of_response(beta=lambda r: 0.5)),
    Fault("another k", "response", of_response(bias=lambda r: 1.0)),
    Fault("epsilon inside the root", "deviation",
          of_norm(epsilon=lambda n: n.deviation_epsilon**2, deviation_epsilon=lambda n: 0.0), "onnx"),
    Fault("epsilon x10", "deviation", of_norm(deviation_epsilon=lambda n: n.deviation_epsilon * 10), "onnx"),
    Fault("no epsilon", "deviation", of_norm(deviation_epsilon=lambda n: 0.0), "onnx"),
    Fault("Bessel's correction forgotten", "bessel",
          of_norm(scale=lambda n: n.scale / BESSEL, deviation_epsilon=lambda n: n.deviation_epsilon / BESSEL),
          "onnx"),
    Fault("scale dropped", "product", of_fold(lambda plan, n: {"weight": None})),
    Fault("shift dropped", "product", of_fold(lambda plan, n: {"bias": None})),
    Fault("scale dropped", "before_product", of_fold(lambda plan, n: {"weight": None})),
    Fault("shift not passed on", "before_product", of_fold(lambda plan, n: {"bias": times(0)(n.bias)})),
    Fault("epsilon x10", "conv", of_statistics(lambda e: e * 10)),
    Fault("epsilon dropped", "conv", of_statistics(lambda e: 0.0)),
    Fault("scale one channel off", "conv",
          of_fold(lambda plan, n: {"weight": (n.weight.T / scale_of(plan) * roll(scale_of(plan))).T
                                   .astype(np.float32)})),
    Fault("its own bias dropped", "conv_bias", of_fold(without_its_own_bias)),
    Fault("its own bias not scaled", "depthwise", of_fold(bias_not_scaled)),
    Fault("shift one channel off", "depthwise", of_fold(lambda plan, n: {"bias": np.roll(n.bias, 1)})),
    Fault("scale along the inputs", "transposed", of_fold(on_the_inputs)),
    Fault("its own bias dropped", "transposed", of_fold(without_its_own_bias)),
    Fault("shift not passed on", "before_conv", of_fold(lambda plan, n: {"bias": None})),
    Fault("epsilon x10", "before_conv", of_statistics(lambda e: e * 10)),
    Fault("alpha applied twice", "gemm", of_fold(lambda plan, n: {"weight": times(0.5)(n.weight)})),
    Fault("epsilon x10", "gemm", of_statistics(lambda e: e * 10)),
    Fault("weights transposed", "before_gemm", of_fold(lambda plan, n: {"weight": n.weight.T.copy()})),
    Fault("one operand twice", "residual", of_guard(lambda node: node.replace_input_with(1, node.inputs[0]))),
    Fault("scale and shift swapped", "lone_affine",
          of_rejoined(lambda facts, node: swapped("BatchNormalization", 1, 2)(facts, [node]))),
    Fault("the usual epsilon", "lone_affine",
          of_rejoined(lambda facts, node: node.attributes.add(ir.AttrFloat32("epsilon", 1e-5)))),
    Fault("variance of another channel", "lone_affine",
          of_rejoined(lambda facts, node: change_operand(facts, node, 4, one_channel))),
)  # fmt: skip
