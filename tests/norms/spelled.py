"""LayerNorm and RMSNorm spelled out part by part, and what a fused result must look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from small_models import (
    FUSED,
    Array,
    Result,
    assert_agree,
    f32,
    mentioned,
    model,
    operators,
    rewritten,
    vector,
)

WIDTH = 6
EPSILON = float(f32(1e-3))
GAMMA, BETA = vector(WIDTH), vector(WIDTH, seed=1)
CONSTANTS = {"e": f32(EPSILON), "g": GAMMA, "b": BETA}
CENTRED = {
    "mean": "m = ReduceMean<axes=[-1]>(x)",
    "centre": "d = Sub(x, m)",
    "square": "s = Mul(d, d)",
    "variance": "v = ReduceMean<axes=[-1]>(s)",
    "epsilon": "ve = Add(v, e)",
    "root": "r = Sqrt(ve) n = Div(d, r)",
    "affine": "k = Mul(n, g) y = Add(k, b)",
}
UNCENTRED = {
    "mean": "",
    "centre": "",
    "square": "s = Mul(x, x)",
    "variance": "v = ReduceMean<axes=[-1]>(s)",
    "epsilon": "ve = Add(v, e)",
    "root": "r = Sqrt(ve) n = Div(x, r)",
    "affine": "y = Mul(n, g)",
}


def layer_norm(
    constants: dict[str, Any] | None = None,
    x: str = "float[4,6]",
    opset: int = 17,
    *,
    outputs: str = "",
    inputs: dict[str, str] | None = None,
    **parts: str,
) -> onnx.ModelProto:
    """A LayerNorm; `parts` replace those of `CENTRED`. At opset 18 axes are an input, and so here."""
    return _written(CENTRED | parts, constants, x, opset, outputs, inputs)


def rms_norm(
    constants: dict[str, Any] | None = None,
    x: str = "float[4,6]",
    opset: int = 17,
    *,
    outputs: str = "",
    inputs: dict[str, str] | None = None,
    **parts: str,
) -> onnx.ModelProto:
    """An RMSNorm; `parts` replace those of `UNCENTRED`."""
    return _written(UNCENTRED | parts, constants, x, opset, outputs, inputs)


def _written(
    parts: dict[str, str],
    constants: dict[str, Any] | None,
    x: str,
    opset: int,
    outputs: str,
    inputs: dict[str, str] | None,
) -> onnx.ModelProto:
    body = " ".join(parts.values())
    if opset >= 18:
        body = body.replace("<axes=[-1]>(x)", "(x, last)").replace("<axes=[-1]>(s)", "(s, last)")
    known = CONSTANTS | {"last": np.array([-1])} | (constants or {})
    return model(body, mentioned(body, known), opset=opset, x=x, outputs=outputs, **(inputs or {}))


def fused_nodes(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The fused nodes of the main graph."""
    return [node for node in proto.graph.node if node.op_type in FUSED]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def parameters(proto: onnx.ModelProto, node: onnx.NodeProto) -> list[Array]:
    """Scale and bias of a fused node, as they are stored."""
    stored = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    return [stored[name] for name in node.input[1:]]


def assert_fused(
    proto: onnx.ModelProto,
    kind: str,
    *,
    epsilon: float = EPSILON,
    axes: tuple[int, ...] = (-1,),
    scale: Any = None,
    bias: Any = None,
    target: str = "ort-cpu",
    outside: str | None = None,
    left: tuple[str, ...] = (),
    **agreement: Any,
) -> Result:
    """One fused site of a kind, with exactly these parameters, that computes the same; again finds nothing.

    left: operators that may stand beside the fused one.
    """
    result = rewritten(proto, target)
    assert [(site.kind, site.axes, site.outside) for site in result.fused] == [(kind, axes, outside)]
    (node,) = fused_nodes(result.model)
    assert np.float32(attributes(node)["epsilon"]) == np.float32(epsilon)
    found = parameters(result.model, node)
    for expected, stored in zip((scale, bias), found, strict=False):
        if expected is not None:
            np.testing.assert_allclose(
                stored.astype(np.float64), np.broadcast_to(expected, stored.shape), rtol=1e-6
            )
    assert set(result.operators) - {node.op_type} <= set(left)
    assert_agree(proto, result.model, **agreement)
    again = rewritten(result.model, target)
    assert not again.fused
    assert again.operators == result.operators
    return result


def left_alone(proto: onnx.ModelProto) -> Result:
    """Nothing is fused, no node changes, and the model computes what it did."""
    result = rewritten(proto)
    assert not result.fused
    assert result.operators == operators(proto)
    assert_agree(proto, result.model)
    return result
