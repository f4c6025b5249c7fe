"""Reading: what is refused, with which words; and that weights stay on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from io_files import TEXT, graph_of
from onnx import TensorProto, helper

from normfuse.errors import InputError
from normfuse.model_io import from_ir, from_proto, read

Save = Callable[[onnx.ModelProto], Path]


def parsed(body: str, header: str = 'ir_version: 8, opset_import: ["" : 17]') -> onnx.ModelProto:
    return onnx.parser.parse_model(f"<{header}> g (float[B, 4] x) => (float[B, 4] y) {{ {body} }}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x00\x01 this is no protobuf \xff", "not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no graph"),
        (onnx.parser.parse_model(TEXT).SerializeToString()[:-30], "not an ONNX model"),
    ],
)
def test_a_file_that_is_no_model_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert "bad.onnx" in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "nowhere.onnx")
    with pytest.raises(InputError, match="folder"):
        read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not an ordinary file"):
        read(tmp_path / "pipe")


def test_nesting_beyond_what_the_format_allows_is_refused(tmp_path: Path) -> None:
    content = b""
    for _ in range(60):  # graph { node { attribute { g { node … } } } }, written by hand: onnx cannot
        for field in (b"\x32", b"\x2a", b"\x0a"):
            content = field + onnx_varint(len(content)) + content
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08\x3a" + onnx_varint(len(content)) + content)
    with pytest.raises(InputError, match="not an ONNX model"):
        read(path)


def onnx_varint(value: int) -> bytes:
    """A length as protobuf writes it."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + onnx_varint(rest) if rest else bytes([low])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = Add(x, nothing)", "reads 'nothing', which nothing defines"),
        ("y = Neg(b)  b = Abs(x)", "only computed later.*not sorted"),
        ("a = Add(x, b)  b = Neg(a)  y = Neg(b)", "cycle"),
        ("a = Neg(x)  a = Abs(x)  y = Neg(a)", "'a' is defined twice"),
        ("x = Neg(x)  y = Abs(x)", "'x' is defined twice"),
        ("z = Neg(x)", "no node computes the output 'y'"),
    ],
)
def test_an_unsound_graph_is_refused_with_its_node(save: Save, body: str, message: str) -> None:
    path = save(parsed(body))
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert "m.onnx" in str(caught.value)


def test_a_subgraph_sees_the_names_around_it_and_no_others(save: Save) -> None:
    body = """c = Constant<value: tensor = bool {1}>()
              y = If(c) <then_branch = g () => (float[B, 4] t) { t = Neg(x) },
                         else_branch = g () => (float[B, 4] u) { u = Neg(CAPTURED) }>"""
    assert read(save(parsed(body.replace("CAPTURED", "x")))).model.graph.num_nodes() == 2
    for name in ("absent", "t"):  # t belongs to the other branch
        with pytest.raises(InputError, match=f"reads '{name}', which nothing defines"):
            read(save(parsed(body.replace("CAPTURED", name))))


def test_duplicate_initializers_are_refused(save: Save) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1024], np.ones(1024, np.float32))
    with pytest.raises(InputError, match="'w' is defined twice"):
        read(save(graph_of([weight, weight], helper.make_node("Add", ["x", "w"], ["y"]))))


def test_a_function_that_calls_itself_is_refused(save: Save) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        g (float[B] x) => (float[B] y) { y = f.again(x) }
        <domain: "f", opset_import: ["" : 17, "f" : 1]> again (a) => (b) { b = f.again(a) }"""
    )
    with pytest.raises(InputError, match=r"f\.again calls itself"):
        read(save(model))


def test_operators_without_a_version_are_refused(save: Save) -> None:
    model = parsed("y = Neg(x)")
    del model.opset_import[:]
    with pytest.raises(InputError, match="which version"):
        read(save(model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"raw_data": b"\0" * 4095}, "holds 4095 bytes"),
        ({"raw_data": b"\0" * 4096, "dims": [2**60, 2**60]}, "takes"),
        ({"raw_data": b"\0" * 4096, "dims": [-1]}, "negative dimension"),
        ({"raw_data": b"\0" * 4096, "data_type": 99}, "data type 99"),
        ({"float_data": [1.0]}, "holds 1 elements"),
        ({}, "without its weights"),
    ],
)
def test_a_weight_that_does_not_fit_its_shape_is_refused(
    save: Save, change: dict[str, object], message: str
) -> None:
    weight = TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, "dims": [1024], **change})
    path = save(graph_of([weight]))
    with pytest.raises(InputError) as caught:
        read(path)
    assert message in f"{caught.value} {caught.value.hint}"


def test_a_layer_normalization_of_two_types_is_refused_with_its_node(save: Save) -> None:
    scale = helper.make_tensor("s", TensorProto.FLOAT16, [1024], np.ones(1024, np.float16))
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], name="norm")
    path = save(graph_of([scale], node))
    with pytest.raises(InputError, match=r"'norm'.*FLOAT.*scale of FLOAT16 \('s'\)") as caught:
        read(path)
    assert "cast" in caught.value.hint


def test_a_name_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(parsed("y = Neg(x)").SerializeToString().replace(b"Neg", b"N\xff\xfe"))
    with pytest.raises(InputError):
        read(path)


def test_an_empty_graph_is_a_model(save: Save) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[B] x) => (float[B] x) {}'
    )
    assert read(save(model)).model.graph.num_nodes() == 0


def test_a_damaged_file_gives_an_input_error_or_a_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    content = onnx.parser.parse_model(TEXT).SerializeToString()
    path = tmp_path / "m.onnx"
    refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        for position in rng.integers(len(content), size=2):
            damaged[position] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            read(path)
        except InputError:
            refused += 1
    assert 0 < refused <= 300


def test_a_model_in_memory_is_left_as_it_is() -> None:
    proto = onnx.parser.parse_model(TEXT)
    before = proto.SerializeToString(deterministic=True)
    source = from_proto(proto)
    source.model.graph.inputs[0].name = "other"
    assert proto.SerializeToString(deterministic=True) == before
    model = ir.from_proto(proto)
    from_ir(model).model.graph.inputs[0].name = "other"
    assert model.graph.inputs[0].name == "x"


def test_a_model_in_memory_nested_beyond_reason_is_refused() -> None:
    condition = ir.Value(name="c", shape=ir.Shape([]), type=ir.TensorType(ir.DataType.BOOL))
    node = ir.node("Not", [condition])
    for _ in range(400):
        body = ir.Graph([], node.outputs, nodes=[node])
        other = ir.node("Not", [condition])
        branches = {"then_branch": body, "else_branch": ir.Graph([], other.outputs, nodes=[other])}
        node = ir.node("If", [condition], branches)
    graph = ir.Graph([condition], node.outputs, nodes=[node], opset_imports={"": 17})
    with pytest.raises(InputError, match="not a valid model, or one of a kind that is not supported"):
        from_ir(ir.Model(graph, ir_version=8))


def test_again_gives_a_fresh_model(text_model: Path) -> None:
    source = read(text_model)
    source.model.graph.remove(source.model.graph[-1], safe=False)
    assert source.again().model.graph.num_nodes() == source.model.graph.num_nodes() + 1
