"""Random linear operators between random affines: folded, they compute the same in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from folding_models import Array, folded
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

AFFINES = ("BatchNormalization", "Mul", "Add", "Sub", "Div", "Neg")


@dataclass(frozen=True)
class Site:
    """An operator with its attributes, weights and shapes, and the affines on both sides of it."""

    operator: str
    attributes: dict[str, object]
    weights: tuple[int, ...]
    bias: tuple[int, ...] | None
    data: tuple[int, ...]
    channels: tuple[int, int]
    front: list[str]
    behind: list[str]
    seed: int


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Conv, Gemm and MatMul in any configuration that is valid."""
    operator = draw(st.sampled_from(["Conv", "Gemm", "MatMul"]))
    inner, outer = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    attributes: dict[str, object] = {}
    bias: tuple[int, ...] | None = (outer,)
    if operator == "Conv":
        groups, kernel = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2]))
        pads = draw(st.sampled_from([[0, 0, 0, 0], [1, 0, 0, 1]]))
        attributes = {"group": groups, "pads": pads}
        data, weights = (2, inner * groups, 4, 3), (outer * groups, inner, kernel, kernel)
        inner, outer = inner * groups, outer * groups
        bias = (outer,)
    elif operator == "Gemm":
        turned = draw(st.integers(0, 1))
        attributes = {"transB": turned, "alpha": draw(st.sampled_from([1.0, 0.5])), "beta": 2.0}
        data, weights = (3, inner), (outer, inner) if turned else (inner, outer)
        bias = draw(st.sampled_from([(), (1,), (outer,), (1, outer)]))
    else:
        data, weights, bias = (3, inner), (inner, outer), None
    chains = st.lists(st.sampled_from(AFFINES), max_size=3)
    has_bias = bias is not None and draw(st.booleans())
    return Site(
        operator,
        attributes,
        weights,
        bias if has_bias else None,
        data,
        (inner, outer),
        draw(chains),
        draw(chains),
        draw(st.integers(0, 99)),
    )


class Builder:
    """One model in float64, node after node."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def constant(self, *shape: int, low: float = -2.0) -> str:
        name = f"k{len(self.weights)}"
        values = self.random.uniform(0.5, 2.0, shape)
        self.weights[name] = values if low > 0 else values * self.random.choice([-1, 1], shape)
        return name

    def node(self, operator: str, *operands: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, operands, [name], **attributes))
        return name

    def affine(self, operator: str, value: str, channels: int, rank: int) -> str:
        if operator == "Neg":
            return self.node("Neg", value)
        if operator == "BatchNormalization":
            parameters = [self.constant(channels, low=1) for _ in range(4)]
            return self.node(operator, value, *parameters, epsilon=0.125)
        shape = [(channels,) + (1,) * (rank - 2), (1, channels) + (1,) * (rank - 2), ()][
            self.random.integers(3)
        ]
        return self.node(operator, value, self.constant(*shape))


def built(site: Site) -> onnx.ModelProto:
    build, rank = Builder(site.seed), len(site.data)
    value = "x"
    for operator in site.front:
        value = build.affine(operator, value, site.channels[0], rank)
    operands = [value, build.constant(*site.weights)]
    if site.bias is not None:
        operands.append(build.constant(*site.bias))
    value = build.node(site.operator, *operands, **site.attributes)
    for operator in site.behind:
        value = build.affine(operator, value, site.channels[1], rank)
    output = helper.make_tensor_value_info(value, TensorProto.DOUBLE, None)
    graph = helper.make_graph(
        build.nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, site.data)],
        [output],
        [numpy_helper.from_array(a, k) for k, a in build.weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


@settings(max_examples=150)
@given(sites())
def test_a_folded_model_computes_the_same(site: Site) -> None:
    model = built(site)
    done = folded(model)
    x = np.random.default_rng(site.seed).normal(size=site.data)
    (before,), (after,) = (ReferenceEvaluator(m).run(None, {"x": x}) for m in (model, done.model))
    np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-9)
    assert len(done.model.graph.node) <= len(model.graph.node)
    padded = site.operator == "Conv" and any(site.attributes["pads"])  # type: ignore[call-overload]
    if not padded:
        left = {"MatMul": 2}.get(site.operator, 1)
        assert len(done.model.graph.node) <= left
    assert not folded(done.model).records
