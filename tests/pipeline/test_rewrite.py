"""The rewrite of a whole model: what is left out, what survives, and that a second run finds nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from small_models import Result, assert_agree, f32, interface, model, rewritten, session, vector

from normfuse.pipeline.rewrite import rewrite
from normfuse.pipeline.rewritten import Rewritten
from normfuse.targets import resolve

Leave = Callable[[str, str, str], "str | None"]
EPSILON = f32(1e-3)


def layer(x: str, y: str) -> str:
    """A LayerNorm; inner values are named after the output, its node "<y>_norm"."""
    return (
        f"{y}m = ReduceMean<axes=[-1]>({x}) {y}d = Sub({x}, {y}m) {y}s = Mul({y}d, {y}d) {y}v = "
        f"ReduceMean<axes=[-1]>({y}s) "
        f"{y}ve = Add({y}v, e) {y}r = Sqrt({y}ve) {y}n = Div({y}d, {y}r) [{y}_norm] {y} = Mul({y}n, g)"
    )


def rms(x: str, y: str) -> str:
    """An RMSNorm."""
    return (
        f"{y}s = Mul({x}, {x}) {y}v = ReduceMean<axes=[-1]>({y}s) {y}ve = Add({y}v, e) {y}r = Sqrt({y}ve) "
        f"{y}n = Div({x}, {y}r) [{y}_norm] {y} = Mul({y}n, g)"
    )


CONSTANTS: dict[str, Any] = {"e": EPSILON, "g": vector(8)}


def block(opset: int = 17) -> onnx.ModelProto:
    """Two norms with a linear layer and a residual between them."""
    body = f"{layer('x', 'a')} p = MatMul(a, w) h = Add(p, x) {rms('h', 'b')} y = Tanh(b)"
    return model(body, CONSTANTS | {"w": vector(8, 8, seed=4)}, x="float[B,4,8]", opset=opset)


def run(proto: onnx.ModelProto, leave: Leave, target: str = "ort-cpu") -> Rewritten:
    return rewrite(ir.from_proto(proto), resolve(target), leave)


def test_each_site_says_what_it_was_and_what_it_became():
    proto = block()
    result = rewritten(proto)
    a, b, guarded = result.sites
    assert (a.kind, a.status, a.anchor, a.output, a.input) == ("LayerNorm", "fused", "a_norm", "a", "x")
    assert a.spelling == "ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul"
    assert (a.operator, a.axes, a.nodes_replaced) == ("LayerNormalization", (-1,), 8)
    assert (b.kind, b.output, b.input) == ("RMSNorm", "b", "h")
    assert (guarded.kind, guarded.status, guarded.operator) == ("Residual", "guarded", "Sum")
    assert_agree(proto, result.model)


@pytest.mark.parametrize("named", ["a_norm", "a"])
def test_a_site_is_left_out_by_its_node_or_its_value(named):
    done = run(block(), lambda kind, anchor, out: "skipped" if named in (anchor, out) else None)
    assert {s.output: (s.status, s.reason) for s in done.sites}["a"] == ("left", "skipped")
    assert {s.output: s.status for s in done.sites}["b"] == "fused"
    assert_agree(block(), ir.to_proto(done.model))


def test_a_kind_is_left_out():
    done = run(block(), lambda kind, anchor, out: "skipped" if kind == "RMSNorm" else None)
    assert {s.output: s.status for s in done.sites if s.kind != "Residual"} == {"a": "fused", "b": "left"}


def test_a_site_that_failed_its_parity_check_is_rolled_back_and_the_rest_is_kept():
    done = run(block(), lambda kind, anchor, out: "rolled-back" if out == "b" else None)
    assert {s.output: (s.status, s.reason) for s in done.sites}["b"] == ("rolled-back", "rolled-back")
    assert {s.output: s.status for s in done.sites}["a"] == "fused"
    assert_agree(block(), ir.to_proto(done.model))


@pytest.mark.parametrize(("reason", "status"), [("skipped", "left"), ("rolled-back", "rolled-back")])
def test_a_guard_that_is_left_out_is_reported(reason, status):
    done = run(block(), lambda kind, anchor, out: reason if kind == "Residual" else None)
    guards = [(s.output, s.status, s.reason, s.operator) for s in done.sites if s.kind == "Residual"]
    assert guards == [("h", status, reason, None)]
    assert "Residual" not in {boundary.kind for boundary in done.boundaries}


def test_a_fold_that_is_rolled_back_is_reported_although_a_part_of_it_is_folded():
    proto = model("p = MatMul(x, w) q = Mul(p, g) y = Add(q, g)", CONSTANTS | {"w": vector(8, 8, seed=4)},
                  x="float[B,4,8]")  # fmt: skip
    done = run(proto, lambda kind, anchor, out: "rolled-back" if out == "y" else None)
    assert {s.output: s.status for s in done.sites} == {"y": "rolled-back", "q": "folded"}
    assert_agree(proto, ir.to_proto(done.model))


def test_boundaries_are_values_of_the_source_and_of_the_result():
    proto = block()
    done = run(proto, lambda *_: None)
    names = {"x"} | {name for node in proto.graph.node for name in node.output}
    after = {"x"} | {out.name for node in done.model.graph for out in node.outputs}
    assert sorted(boundary.kind for boundary in done.boundaries) == ["LayerNorm", "RMSNorm", "Residual"]
    for boundary in done.boundaries:
        assert {*boundary.reads, boundary.output} <= names & after


@pytest.mark.parametrize("target", ["ort-cpu", "ort", "onnx"])
@pytest.mark.parametrize("opset", [11, 13, 17])
def test_a_second_run_changes_nothing(target, opset):
    once = rewritten(block(opset), target)
    twice = rewritten(once.model, target)
    assert not twice.sites
    assert twice.model.SerializeToString(deterministic=True) == once.model.SerializeToString(
        deterministic=True
    )


def test_two_runs_on_one_model_give_the_same_bytes():
    first, second = (rewritten(block()).model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def annotated() -> onnx.ModelProto:
    """A block with metadata everywhere, and a dead node."""
    proto = block()
    proto.metadata_props.add(key="author", value="someone")
    proto.producer_name, proto.doc_string, proto.graph.doc_string = "maker", "the model", "the graph"
    for node in proto.graph.node:
        if node.op_type in ("MatMul", "Tanh"):
            node.name, node.doc_string = f"layer/{node.op_type}", "as it was"
            node.metadata_props.add(key="scope", value="encoder")
    proto.graph.node.append(onnx.helper.make_node("Neg", ["p"], ["dead"], name="dead"))
    return proto


def test_what_is_not_rewritten_survives():
    proto = annotated()
    result = rewritten(proto).model
    assert interface(result) == interface(proto)
    assert [(p.key, p.value) for p in result.metadata_props] == [("author", "someone")]
    assert (result.producer_name, result.doc_string, result.graph.doc_string) == (
        "maker",
        "the model",
        "the graph",
    )
    assert (result.ir_version, list(result.opset_import)) == (proto.ir_version, list(proto.opset_import))
    kept = {n.name: n for n in result.graph.node}
    for node in proto.graph.node:
        if node.op_type in ("MatMul", "Tanh", "Neg"):
            same = kept[node.name]
            assert (same.op_type, list(same.input), list(same.output)) == (
                node.op_type,
                list(node.input),
                list(node.output),
            )
            assert (same.doc_string, list(same.metadata_props)) == (
                node.doc_string,
                list(node.metadata_props),
            )


def test_untouched_weights_keep_their_bytes():
    proto = block()
    before = {t.name: numpy_helper.to_array(t).tobytes() for t in proto.graph.initializer}
    after = {t.name: numpy_helper.to_array(t).tobytes() for t in rewritten(proto).model.graph.initializer}
    assert after["w"] == before["w"]
    assert after["g"] == before["g"]
    assert "e" not in after


def test_a_model_with_nothing_to_do_is_untouched():
    proto = model("y = Tanh(x)", x="float[B,8]")
    result = rewritten(proto)
    assert not result.sites
    assert result.operators == {"Tanh": 1}


def test_sites_that_feed_each_other_are_rewired():
    body = f"{layer('x', 'a')} {layer('a', 'b')} {rms('b', 'c')} y = Neg(c)"
    proto = model(body, CONSTANTS, x="float[4,8]")
    result = rewritten(proto)
    assert sum(result.operators.values()) <= 4
    assert_agree(proto, result.model)


def test_a_norm_in_a_body_that_reads_a_fused_value():
    inner = layer("a", "p")
    proto = model(
        f"{layer('x', 'a')} y = If(c) <then_branch = t () => (float[4,8] p) {{ {inner} }}, "
        "else_branch = f () => (float[4,8] q) { q = Neg(a) }>",
        CONSTANTS,
        x="float[4,8]",
        c="bool",
    )
    result = rewritten(proto)
    assert result.operators["LayerNormalization"] == 2
    assert result.operators["Sqrt"] == 0
    assert_agree(proto, result.model)


def test_a_norm_in_the_body_of_a_loop():
    body = layer("s", "t")
    proto = model(
        f"y = Loop(k, , x) <body = b (int64 i, bool c, float[4,8] s) => (bool o, float[4,8] t) "
        f"{{ o = Identity(c) {body} }}>",
        CONSTANTS | {"k": np.array(3)},
        x="float[4,8]",
    )
    result = rewritten(proto)
    assert result.operators["LayerNormalization"] == 1
    assert_agree(proto, result.model)


FUNCTION = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[4,8] x) => (float[4,8] y) { a = local.norm(x) b = local.twice(a) y = local.norm(b) }
<domain: "local", opset_import: ["" : 17]>
norm (p) => (q) {
    m = ReduceMean<axes=[-1]>(p)  d = Sub(p, m)  s = Mul(d, d)  v = ReduceMean<axes=[-1]>(s)
    e = Constant<value_float=0.001>()  ve = Add(v, e)  r = Sqrt(ve)  q = Div(d, r)
}
<domain: "local", opset_import: ["" : 17]>
twice (p) => (q) { q = Add(p, p) }
"""


def test_functions_that_hold_a_norm_are_inlined_and_no_others():
    proto = parser.parse_model(FUNCTION)
    result = rewritten(proto)
    assert result.operators["LayerNormalization"] == 2
    assert [f.name for f in result.model.functions] == ["twice"]
    assert_agree(proto, result.model)
    assert not rewritten(result.model).fused


def test_a_function_that_gains_nothing_is_not_inlined():
    text = FUNCTION.replace("q = Div(d, r)", "k = Pow(d, m)  q = Div(k, r)")
    proto = parser.parse_model(text)
    result = rewritten(proto)
    assert not result.fused
    assert len(result.model.functions) == 2


def test_the_raised_model_is_only_taken_where_a_norm_needs_it():
    proto = model(f"{rms('x', 'a')} y = Neg(a)", CONSTANTS, x="float[4,8]", opset=13)
    for target, opset in (("ort-cpu", 13), ("onnx", 23)):
        result = rewritten(proto, target)
        assert result.model.opset_import[0].version == opset
        session(result.model)


def many(count: int) -> Result:
    """A tower of norms."""
    body = " ".join(f"{layer(f'h{k}', f'a{k}')} h{k + 1} = Add(h{k}, a{k})" for k in range(count))
    proto = model(body.replace("h0", "x") + f" y = Neg(h{count})", CONSTANTS, x="float[4,8]")
    result = rewritten(proto)
    assert_agree(proto, result.model)
    return result


def test_every_norm_of_a_tower_is_fused():
    result = many(12)
    assert result.operators["LayerNormalization"] == 12
    assert result.operators["ReduceMean"] == 0
