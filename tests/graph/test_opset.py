"""A raised model computes the same and is still the user's model; what cannot be raised faithfully is not."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from small_models import assert_agree, f32, interface, model

from normfuse.graph.opset import raised

NORM = "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s) y = Add(v, d)"


def raise_to(
    proto: onnx.ModelProto, version: int, *, allow_insertions: bool = False
) -> onnx.ModelProto | None:
    higher = raised(ir.from_proto(proto), version, allow_insertions=allow_insertions)
    return None if higher is None else ir.to_proto(higher)


@pytest.mark.parametrize(("old", "new"), [(9, 17), (11, 17), (13, 17), (17, 23), (18, 23)])
def test_a_raised_model_computes_the_same(old, new):
    text = NORM if old < 18 else NORM.replace("<axes=[-1]>(x)", "(x)").replace("<axes=[-1]>(s)", "(s)")
    proto = model(text, x="float[B,6]", opset=old)
    higher = raise_to(proto, new)
    assert higher is not None
    assert higher.opset_import[0].version == new
    onnx.checker.check_model(higher, full_check=True)
    assert_agree(proto, higher)


WEIGHTS = "a = MatMul(x, w) r = Reshape(a, shape) y = Add(r, b)"


def weighted(opset: int, *, as_inputs: bool) -> onnx.ModelProto:
    """A weight of more elements than onnx's converter is shown, and a shape that it has to see."""
    values = {"w": f32(np.ones((6, 200))), "shape": np.array([0, 200]), "b": f32(np.arange(200))}
    proto = model(WEIGHTS, values, x="float[B,6]", outputs="float[B,200] y", opset=opset)
    proto.opset_import.add(domain="unused", version=1)
    if as_inputs:
        kinds = [(t.name, t.data_type, t.dims) for t in proto.graph.initializer]
        proto.graph.input.extend(onnx.helper.make_tensor_value_info(*kind) for kind in kinds)
    return proto


@pytest.mark.parametrize("as_inputs", [False, True])
@pytest.mark.parametrize(("old", "new"), [(9, 13), (11, 17), (13, 17), (13, 21), (17, 23)])
def test_below_opset_18_it_is_converted_as_by_onnxscript(
    old: int, new: int, as_inputs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = weighted(old, as_inputs=as_inputs)
    ours = raised(ir.from_proto(proto), new, allow_insertions=False)
    monkeypatch.setattr("normfuse.graph.opset._ONNXSCRIPTS_FIRST", 0)
    theirs = raised(ir.from_proto(proto), new, allow_insertions=False)
    assert ours is not None
    assert theirs is not None
    assert ir.to_proto(ours) == ir.to_proto(theirs)
    assert roles(ours) == roles(theirs)
    assert ours.graph.initializers["b"].is_graph_input() == as_inputs


def roles(raised_model: ir.Model) -> list[tuple[object, ...]]:
    """What the message does not tell: what each value takes itself for."""
    values = (*raised_model.graph.inputs, *raised_model.graph.initializers.values())
    return [(v.name, v.is_graph_input(), v.is_initializer(), v.dtype, v.shape) for v in values]


def annotated() -> onnx.ModelProto:
    proto = model(NORM, x="float[B,6]", opset=11)
    for k, node in enumerate(proto.graph.node):
        node.name, node.doc_string = f"block/{node.op_type}_{k}", f"line {k}"
        node.metadata_props.add(key="scope", value=f"layer {k}")
    proto.metadata_props.add(key="author", value="someone")
    proto.producer_name, proto.producer_version, proto.domain = "maker", "1.2", "example"
    proto.model_version, proto.doc_string, proto.graph.doc_string = 7, "the model", "the graph"
    return proto


def test_names_and_metadata_survive():
    proto = annotated()
    higher = raise_to(proto, 17)
    assert higher is not None
    kept = {n.name: (n.doc_string, [(p.key, p.value) for p in n.metadata_props]) for n in higher.graph.node}
    for node in proto.graph.node:
        assert kept[node.name] == (node.doc_string, [(p.key, p.value) for p in node.metadata_props])
    assert [(p.key, p.value) for p in higher.metadata_props] == [("author", "someone")]
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "ir_version"):
        assert getattr(higher, name) == getattr(proto, name)
    assert higher.graph.doc_string == "the graph"
    assert interface(higher) == interface(proto)


def test_the_model_itself_is_not_changed():
    loaded = ir.from_proto(annotated())
    before = ir.to_proto(loaded).SerializeToString(deterministic=True)
    raised(loaded, 17, allow_insertions=True)
    assert ir.to_proto(loaded).SerializeToString(deterministic=True) == before


def test_a_conversion_that_inserts_nodes_is_only_taken_where_that_is_allowed():
    proto = model("a = Softmax<axis=1>(x) y = Neg(a)", x="float[2,3,4]", opset=11)
    assert raise_to(proto, 17) is None
    higher = raise_to(proto, 17, allow_insertions=True)
    assert higher is not None
    assert_agree(proto, higher)


def test_a_model_with_functions_is_not_raised():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13, "local": 1]> '
        "g (float[3] x) => (float[3] y) { y = local.f(x) } "
        '<domain: "local", opset_import: ["": 13]> f (p) => (q) { q = Neg(p) }'
    )
    assert raise_to(proto, 17) is None


def test_an_operator_without_an_adapter_keeps_the_opset():
    proto = model(
        'y = Upsample<mode="nearest">(x, s)',
        {"s": f32(1, 1, 2, 2)},
        x="float[1,1,2,2]",
        outputs="float[1,1,4,4] y",
        opset=9,
    )
    higher = raise_to(proto, 17)
    assert higher is None or "Upsample" not in [n.op_type for n in higher.graph.node]


def test_a_body_is_raised_with_its_graph():
    body = NORM.replace("y = ", "p = ")
    proto = model(
        f"y = If(c) <then_branch = t () => (float[2,6] p) {{ {body} }}, else_branch = e () => "
        f"(float[2,6] q) {{ q = Neg(x) }}>",
        x="float[2,6]",
        c="bool",
        opset=13,
    )
    higher = raise_to(proto, 18, allow_insertions=True)
    if higher is not None:
        onnx.checker.check_model(higher, full_check=True)
        assert_agree(proto, higher)


def test_a_declared_output_shape_survives():
    proto = model(NORM, x="float[2,6]", outputs="float[rows,columns] y", opset=11)
    higher = raise_to(proto, 17)
    assert higher is not None
    assert interface(higher) == interface(proto)
    assert_agree(proto, higher)


def resized(operator: str, opset: int, *scales: float) -> onnx.ModelProto:
    body = f"y = {operator}"
    size = ",".join(str(int(k * n)) for k, n in zip(scales, (4, 6), strict=True))
    constants = {"s": f32(1, 1, *scales)} if "s)" in body else {}
    return model(body, constants, x="float[1,2,4,6]", outputs=f"float[1,2,{size}] y", opset=opset)


@pytest.mark.parametrize("operator", ["Resize", "Upsample"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("scales", [(2, 2), (1.5, 1.5)])
def test_images_are_sampled_as_before(operator, mode, scales):
    proto = resized(f'{operator}<mode="{mode}">(x, s)', 10 if operator == "Resize" else 9, *scales)
    higher = raise_to(proto, 17, allow_insertions=True)
    assert higher is not None
    assert_agree(proto, higher)


def test_a_nearest_pixel_that_no_mode_names_keeps_the_opset():
    assert raise_to(resized('Resize<mode="nearest">(x, s)', 10, 0.5, 0.5), 17, allow_insertions=True) is None
