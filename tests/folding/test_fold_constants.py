"""Weights keep their names, are copied where others read them, and new names collide with nothing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from folding_models import assert_folds, assert_left, built, folded, norm, normal
from onnx import TensorProto, helper
from small_models import assert_agree

IN, OUT = "float[2,4,9,9]", "float[2,6,7,7]"


def test_weights_with_one_reader_keep_their_names_and_the_norm_leaves_nothing_behind() -> None:
    model = built(
        "c = Conv(x, w, b) y = BN(c, *n)", x=IN, out=OUT, w=normal(6, 4, 3, 3), b=normal(6), **norm("n", 6)
    )
    done = assert_folds(model, Conv=1)
    assert done.initializers == {"w", "b"}
    assert done.records[0].added_bytes == 0


def test_a_shared_weight_is_copied_and_the_plain_path_keeps_the_old_one() -> None:
    body = "c = Conv(x, w) n = BN(c, *n) d = Conv(z, w) y = Add(n, d)"
    model = built(body, x=IN, out=OUT, more={"z": IN}, w=normal(6, 4, 3, 3), **norm("n", 6))
    done = assert_folds(model, Conv=2, Add=1)
    np.testing.assert_array_equal(done.weight("w"), normal(6, 4, 3, 3))
    assert done.records[0].added_bytes == 6 * 4 * 9 * 4 + 6 * 4


def test_two_norms_of_one_weight() -> None:
    body = "c = Conv(x, w, b) n = BN(c, *n) d = Conv(z, w, b) m = BN(d, *m) y = Add(n, m)"
    model = built(
        body, x=IN, out=OUT, more={"z": IN}, w=normal(6, 4, 3, 3), b=normal(6), **norm("n", 6), **norm("m", 6)
    )
    done = assert_folds(model, Conv=2, Add=1)
    assert len(done.initializers) == 4


def test_a_weight_that_a_body_captures_is_copied() -> None:
    model = built(
        "c = Conv(x, w) y = BN(c, *n)",
        x=IN,
        out=OUT,
        w=normal(6, 4, 3, 3),
        yes=np.bool_(True),
        **norm("n", 6),
    )
    shape = [2, 6, 7, 7]
    plain = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["p"])],
        "plain",
        [],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, shape)],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["y"], ["q"])],
        "other",
        [],
        [helper.make_tensor_value_info("q", TensorProto.FLOAT, shape)],
    )
    model.graph.node.append(helper.make_node("If", ["yes"], ["z"], then_branch=plain, else_branch=other))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, shape))
    done = assert_folds(model, Conv=2, If=1, Neg=1)
    np.testing.assert_array_equal(done.weight("w"), normal(6, 4, 3, 3))


def test_a_norm_inside_a_body_folds_into_weights_outside() -> None:
    model = built("y = Identity(x)", x=IN, out=IN, w=normal(6, 4, 3, 3), yes=np.bool_(True), **norm("n", 6))
    shape = [2, 6, 7, 7]
    names = ["n_scale", "n_bias", "n_mean", "n_var"]
    branches = {}
    for key, value in (("then_branch", "p"), ("else_branch", "q")):
        nodes = [
            helper.make_node("Conv", ["x", "w"], [f"{value}c"]),
            helper.make_node("BatchNormalization", [f"{value}c", *names], [value]),
        ]
        outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)]
        branches[key] = helper.make_graph(nodes, value, [], outputs)
    model.graph.node.append(helper.make_node("If", ["yes"], ["z"], **branches))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, shape))
    assert_folds(model, Identity=1, If=1, Conv=2)


def test_new_names_come_from_the_node_and_collide_with_nothing() -> None:
    """B-062: two bias-free operators that read the same tensor, and names that are taken already."""
    body = "a = MatMul(x, w) m = BN(a, *m) b = MatMul(x, v) n = BN(b, *n) "
    model = built(
        f"{body} y = Concat<axis=1>(m, n)",
        x="float[3,4]",
        out="float[3,11]",
        w=normal(4, 5),
        v=normal(4, 6),
        **norm("m", 5),
        **norm("n", 6),
    )
    for node, name in zip(model.graph.node, ("lin", "bn1", "lin/bias", "bn2", "cat"), strict=True):
        node.name = name
    model.graph.initializer.append(onnx.numpy_helper.from_array(normal(3), "lin/bias"))
    model.graph.node.append(helper.make_node("Identity", ["lin/bias"], ["z"], "x_bias"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [3]))
    done = assert_folds(model, MatMul=2, Add=2, Concat=1, Identity=1)
    names = [node.name for node in done.model.graph.node]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("ir_version", [3, 4])
def test_in_old_files_initializers_are_inputs_and_constant_all_the_same(ir_version: int) -> None:
    """B-075; what is listed as an input stays listed, or a caller would miss it."""
    model = built(
        "c = Conv(x, w) y = BN(c, *n)",
        x=IN,
        out=OUT,
        opset=8,
        ir_version=ir_version,
        w=normal(6, 4, 3, 3),
        **norm("n", 6),
    )
    done = folded(model)
    assert done.operators == {"Conv": 1}
    assert_agree(model, done.model)
    assert [v.name for v in done.model.graph.input] == [v.name for v in model.graph.input]


@pytest.mark.parametrize(
    "weights",
    [
        "w = Constant() ",
        "w = Transpose<perm=[1,0]>(v) ",
        "h = Cast<to=10>(u) w = Cast<to=1>(h) ",
    ],
)
def test_weights_may_be_constant_nodes_and_small_chains(weights: str) -> None:
    model = built(
        f"{weights} m = MatMul(x, w) y = BN(m, *n)",
        x="float[3,4]",
        out="float[3,5]",
        u=normal(4, 5),
        v=normal(5, 4),
        **norm("n", 5),
    )
    if "Constant" in weights:
        tensor = onnx.numpy_helper.from_array(normal(4, 5))
        model.graph.node[0].attribute.append(helper.make_attribute("value", tensor))
    done = assert_folds(model, MatMul=1, Add=1)
    assert not [node for node in done.model.graph.node if node.op_type == "Constant"]


def test_parameters_behind_unsqueeze_are_constants() -> None:
    body = "c = Conv(x, w) n = BN(c, *n) s = Unsqueeze<axes=[1,2]>(g) m = Mul(n, s) "
    body += "t = Unsqueeze<axes=[1,2]>(h) y = Add(m, t)"
    model = built(
        body, x=IN, out=OUT, opset=9, w=normal(6, 4, 3, 3), g=normal(6), h=normal(6, seed=1), **norm("n", 6)
    )
    done = assert_folds(model, Conv=1)
    assert len(done.initializers) == 2


def test_a_lone_mul_is_not_worth_a_copy_of_large_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "m = MatMul(x, w) a = Mul(m, s) b = MatMul(z, w) y = Add(a, b)"
    model = built(
        body, x="float[3,4]", out="float[3,5]", more={"z": "float[3,4]"}, w=normal(4, 5), s=np.float32(0.5)
    )
    assert folded(model).operators["Mul"] == 0
    monkeypatch.setattr("normfuse.folding.fold.MAX_COPY", 79)
    done = folded(model)
    assert done.operators["Mul"] == 1
    assert done.reasons == []


def test_a_lone_mul_is_not_worth_reading_large_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(
        "m = MatMul(x, w) y = Mul(m, s)", x="float[3,4]", out="float[3,5]", w=normal(4, 5), s=np.float32(0.5)
    )
    monkeypatch.setattr("normfuse.folding.fold.MAX_REWRITE", 79)
    assert folded(model).operators == {"MatMul": 1, "Mul": 1}


def test_values_that_hold_other_numbers_now_have_other_names() -> None:
    """Whoever compares the two models by name must not be misled."""
    body = "m = MatMul(x, w) a = Add(m, b) t = Transpose<perm=[0,2,1]>(a) y = BN(t, *n)"
    model = built(body, x="float[2,7,5]", out="float[2,4,7]", w=normal(5, 4), b=normal(4), **norm("n", 4))
    done = assert_folds(model, MatMul=1, Add=1, Transpose=1)
    made = {name for node in done.model.graph.node for name in node.output}
    assert not made & {"m", "a", "t"}
    assert "y" in made


EXPANDED = "zero = Constant<value_float=0.0>() wide = Expand(zero, six) "


def test_a_bias_that_is_expanded_is_a_constant_beside_a_fold() -> None:
    """As torch exports a Conv without bias; its neighbour has no norm to fold."""
    model = built(
        f"{EXPANDED} c = Conv(x, w, wide) n = BN(c, *n) r = Relu(n) z = Expand(zero, six) y = Conv(r, v, z)",
        x="float[2,4,9,9]",
        out="float[2,6,5,5]",
        six=np.array([6]),
        v=normal(6, 6, 3, 3),
        w=normal(6, 4, 3, 3),
        **norm("n", 6),
    )
    done = assert_folds(model, Conv=2, Relu=1)
    assert "z" in done.initializers


def test_a_model_without_a_fold_keeps_its_expanded_bias() -> None:
    model = built(
        f"{EXPANDED} y = Conv(x, w, wide)",
        x="float[2,4,9,9]",
        out="float[2,6,7,7]",
        six=np.array([6]),
        w=normal(6, 4, 3, 3),
    )
    assert_left(model)
