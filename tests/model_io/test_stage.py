"""Writing: nothing lost, nothing half written, never over the source."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from io_files import TEXT, N, graph_of, leftovers, reference, run, with_data

from normfuse.errors import UsageError
from normfuse.model_io import Source, copy_unchanged, data, from_ir, from_proto, original, read, stage


def written(source: Source, out: Path) -> Path:
    with stage(source.model, source, out) as staged:
        return staged.commit()


def canonical(path: Path) -> onnx.ModelProto:
    """The model without what carries no meaning: the order of metadata, and empty fields that are set."""
    model = onnx.load(path)
    model.metadata_props.sort(key=lambda entry: entry.key)
    for node in (n for nodes in (model.graph.node, *(f.node for f in model.functions)) for n in nodes):
        if not node.domain:
            node.ClearField("domain")
    return model


def replace_weight(source: Source, name: str, fill: float, size: int = N) -> None:
    """What a fold does: a new tensor under the old name."""
    value = source.model.graph.initializers[name]
    value.const_value = ir.tensor(np.full(size, fill, np.float32), name=name)


# -- nothing is lost ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["path", "proto", "ir"])
def test_a_round_trip_changes_nothing(text_model: Path, kind: str) -> None:
    proto = onnx.load(text_model)
    source = {
        "path": lambda: read(text_model),
        "proto": lambda: from_proto(proto),
        "ir": lambda: from_ir(ir.from_proto(proto)),
    }[kind]()
    after = written(source, text_model.with_name("out.onnx"))
    assert canonical(after) == canonical(text_model)


def test_functions_and_their_metadata_survive(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 17, "f" : 1]>
        g (float[B] x) => (float[B] y) { y = f.twice <k = 2> (x) }
        <domain: "f", opset_import: ["" : 17], doc_string: "twice">
        twice <k> (a) => (b) { c = Add(a, a)  b = Neg(c) }"""
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    assert canonical(written(read(path), tmp_path / "out.onnx")) == canonical(path)


def test_the_interface_is_written_as_it_was_read(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(TEXT)
    model.graph.input[0].doc_string = "tokens"
    model.graph.input[0].type.denotation = "TENSOR"
    model.graph.input[0].type.tensor_type.shape.dim[1].ClearField("dim_param")
    onnx.save(model, tmp_path / "m.onnx")
    source = read(tmp_path / "m.onnx")
    source.model.graph.inputs[0].shape = ir.Shape([2, 3, 1024])  # shape inference may do that
    after = onnx.load(written(source, tmp_path / "out.onnx"))
    assert list(after.graph.input) == list(model.graph.input)
    assert list(after.graph.output) == list(model.graph.output)


def test_sparse_initializers_survive(tmp_path: Path) -> None:
    model = graph_of([], onnx.helper.make_node("Add", ["x", "w"], ["y"]))
    values = onnx.helper.make_tensor("w", 1, [1], [7.0])
    model.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(values, onnx.helper.make_tensor("i", 7, [1], [3]), [N])
    )
    onnx.save(model, tmp_path / "m.onnx")
    assert onnx.load(written(read(tmp_path / "m.onnx"), tmp_path / "out.onnx")) == model


def test_the_bytes_are_the_same_every_time(tmp_path: Path, text_model: Path) -> None:
    contents = {written(read(text_model), tmp_path / f"{i}.onnx").read_bytes() for i in range(3)}
    assert len(contents) == 1
    again = read(tmp_path / "0.onnx")
    assert written(again, tmp_path / "again.onnx").read_bytes() in contents


def test_the_version_of_the_format_is_never_raised(text_model: Path) -> None:
    source = read(text_model)
    source.model.ir_version = 13
    assert onnx.load(written(source, text_model.with_name("out.onnx"))).ir_version == 8


def old_format(tmp_path: Path) -> Path:
    """At version 3 of the format every initializer is a graph input too."""
    weight = onnx.helper.make_tensor("w0", 1, [N], np.ones(N, np.float32))
    model = graph_of([weight])
    model.ir_version = 3
    model.graph.input.append(onnx.helper.make_tensor_value_info("w0", 1, [N]))
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_in_the_old_format_new_constants_are_nodes_and_inputs_keep_their_values(tmp_path: Path) -> None:
    source = read(old_format(tmp_path))
    graph = source.model.graph
    new = ir.Value(name="w_new", const_value=ir.tensor(np.full(N, 2, np.float32), name="w_new"))
    graph.register_initializer(new)
    graph[0].replace_input_with(1, new)
    del graph.initializers["w0"]
    graph.inputs[1].const_value = None
    out = written(source, tmp_path / "out.onnx")
    after = onnx.load(out)
    onnx.checker.check_model(after)
    assert [value.name for value in after.graph.input] == ["x", "w0"]
    assert [tensor.name for tensor in after.graph.initializer] == ["w0"]
    assert run(out)[0, 0] == 2


# -- data files -----------------------------------------------------------------------------------------


def test_beside_the_source_untouched_weights_are_shared(tmp_path: Path) -> None:
    source = read(with_data(tmp_path))
    with stage(source.model, source, tmp_path / "out.onnx") as staged:
        assert staged.depends_on == ((tmp_path / "m.onnx.data").resolve(),)
        assert staged.size == source.size
        assert run(staged.path)[0, 0] == 3
        staged.commit()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data", "out.onnx"]
    assert (tmp_path / "out.onnx").read_bytes() == source.path.read_bytes()


def test_beside_the_source_only_new_big_weights_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "_BIG", 4 * N)
    source = read(with_data(tmp_path))
    before = (tmp_path / "m.onnx.data").read_bytes()
    replace_weight(source, "w0", 10)
    with stage(source.model, source, tmp_path / "out.onnx") as staged:
        assert run(staged.path)[0, 0] == 12
        out = staged.commit()
    assert run(out)[0, 0] == 12
    assert (tmp_path / "out.onnx.data").stat().st_size == 4 * N
    assert (tmp_path / "m.onnx.data").read_bytes() == before
    locations = {
        t.name: t.external_data[0].value for t in onnx.load(out, load_external_data=False).graph.initializer
    }
    assert locations == {"w0": "out.onnx.data", "w1": "m.onnx.data"}


def test_a_new_big_weight_is_split_off_although_no_old_one_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "_BIG", 4 * N)
    source = read(with_data(tmp_path, ("m.onnx.data",)))
    replace_weight(source, "w0", 10)
    out = written(source, tmp_path / "out.onnx")
    assert run(out)[0, 0] == 10
    assert (tmp_path / "out.onnx.data").stat().st_size == 4 * N


def test_new_small_weights_stay_in_the_model(tmp_path: Path) -> None:
    source = read(with_data(tmp_path))
    replace_weight(source, "w0", 10)
    assert run(written(source, tmp_path / "out.onnx"))[0, 0] == 12
    assert not (tmp_path / "out.onnx.data").exists()


@pytest.mark.parametrize(
    "locations", [("m.onnx.data",) * 2, ("a.bin", "sub/b.bin"), ("a.bin", "b.bin", "a.bin")]
)
def test_elsewhere_all_weights_are_copied_into_one_file(tmp_path: Path, locations: tuple[str, ...]) -> None:
    source = read(with_data(tmp_path / "in", locations))
    (tmp_path / "out").mkdir()
    out = written(source, tmp_path / "out" / "n.onnx")
    (tmp_path / "in").rename(tmp_path / "gone")  # nothing may depend on it
    assert sorted(p.name for p in out.parent.iterdir()) == ["n.onnx", "n.onnx.data"]
    assert run(out)[0, 0] == sum(range(1, len(locations) + 1))
    assert [p.stat().st_nlink for p in out.parent.iterdir()] == [1, 1]


def test_the_data_file_does_not_grow_from_run_to_run(tmp_path: Path) -> None:
    path = with_data(tmp_path / "in")
    (tmp_path / "out").mkdir()
    sizes = []
    for _ in range(3):
        out = written(read(path), tmp_path / "out" / "m.onnx")
        sizes.append((out.parent / "m.onnx.data").stat().st_size)
    assert sizes == [8 * N] * 3


def test_weights_that_are_no_longer_used_are_not_copied(tmp_path: Path) -> None:
    path = with_data(tmp_path / "in", ("m.onnx.data",) * 4)
    (tmp_path / "out").mkdir()
    source = read(path)
    for name in ("w1", "w2"):
        replace_weight(source, name, 20)
    out = written(source, tmp_path / "out" / "m.onnx")
    assert run(out)[0, 0] == 1 + 20 + 20 + 4
    assert (tmp_path / "out" / "m.onnx.data").stat().st_size == 8 * N


def test_a_model_too_large_for_one_file_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "INLINE_LIMIT", 4 * N)
    weights = [onnx.helper.make_tensor(f"w{i}", 1, [N], np.full(N, i + 1, np.float32)) for i in range(2)]
    onnx.save(graph_of(weights), tmp_path / "m.onnx")
    out = written(read(tmp_path / "m.onnx"), tmp_path / "out.onnx")
    assert run(out)[0, 0] == 3
    assert out.stat().st_size < 4 * N
    assert (tmp_path / "out.onnx.data").stat().st_size == 8 * N


def test_a_sparse_data_file_stays_sparse(tmp_path: Path) -> None:
    size = 64 << 20
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "d").open("wb") as file:
        file.truncate(size)
        file.seek(size // 2)
        file.write(b"\x01" * 4096)
    onnx.save(graph_of([reference("w", "d", 0, size, [size // 4])]), tmp_path / "in" / "m.onnx")
    (tmp_path / "out").mkdir()
    written(read(tmp_path / "in" / "m.onnx"), tmp_path / "out" / "m.onnx")
    copied = tmp_path / "out" / "m.onnx.data"
    assert copied.stat().st_size == size
    assert copied.read_bytes() == (tmp_path / "in" / "d").read_bytes()
    assert copied.stat().st_blocks <= (tmp_path / "in" / "d").stat().st_blocks + 64


def test_data_is_copied_by_hand_where_the_kernel_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "another device")

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    (tmp_path / "out").mkdir()
    assert run(written(read(with_data(tmp_path / "in")), tmp_path / "out" / "m.onnx"))[0, 0] == 3


# -- when nothing was rewritten -------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [".", "elsewhere"])
def test_an_unchanged_model_is_copied_byte_for_byte(text_model: Path, folder: str) -> None:
    content = text_model.read_bytes() + b""
    (text_model.parent / folder).mkdir(exist_ok=True)
    with copy_unchanged(read(text_model), text_model.parent / folder / "out.onnx") as staged:
        assert staged.commit().read_bytes() == content


def test_an_unchanged_model_takes_its_data_along(tmp_path: Path) -> None:
    source = read(with_data(tmp_path / "in"))
    with copy_unchanged(source, tmp_path / "in" / "beside.onnx") as staged:
        assert staged.commit().read_bytes() == source.path.read_bytes()
    (tmp_path / "out").mkdir()
    with copy_unchanged(source, tmp_path / "out" / "m.onnx") as staged:
        out = staged.commit()
    (tmp_path / "in").rename(tmp_path / "gone")
    assert run(out)[0, 0] == 3


@pytest.mark.parametrize("make", [from_proto, lambda proto: from_ir(ir.from_proto(proto))])
def test_a_model_in_memory_can_be_run(make: Callable[[onnx.ModelProto], Source]) -> None:
    source = make(graph_of([onnx.helper.make_tensor("w", 1, [N], np.full(N, 4, np.float32))]))
    with original(source) as path:
        assert run(path)[0, 0] == 4
    assert not path.exists()
    with stage(source.model, source, None) as staged:
        assert run(staged.path)[0, 0] == 4
    assert not staged.path.exists()


# -- nothing is destroyed -------------------------------------------------------------------------------


def test_the_source_is_never_written_over(tmp_path: Path) -> None:
    path = with_data(tmp_path / "in")
    (tmp_path / "link.onnx").symlink_to(path)
    source = read(path)
    data_name = tmp_path / "in" / "m.onnx.data"
    for out in (path, tmp_path / "link.onnx", tmp_path / "in" / ".." / "in" / "m.onnx", data_name):
        with pytest.raises(UsageError, match="input"):
            stage(source.model, source, out)
        with pytest.raises(UsageError, match="input"):
            copy_unchanged(source, out)


def test_an_output_whose_data_file_is_the_sources_is_refused(tmp_path: Path) -> None:
    source = read(with_data(tmp_path, ("out.onnx.data",)))
    with pytest.raises(UsageError, match="holds the weights of the input"):
        stage(source.model, source, tmp_path / "out.onnx")


@pytest.mark.parametrize(
    ("out", "message"), [("folder", "it is a folder"), ("no/such/out.onnx", "there is no folder")]
)
def test_an_impossible_output_is_refused(text_model: Path, out: str, message: str) -> None:
    (text_model.parent / "folder").mkdir()
    with pytest.raises(UsageError, match=message):
        stage(read(text_model).model, read(text_model), text_model.parent / out)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["out.onnx", "out.onnx.data"])
def test_what_is_no_ordinary_file_is_never_replaced(text_model: Path, name: str) -> None:
    os.mkfifo(text_model.with_name(name))
    with pytest.raises(UsageError, match="no ordinary file"):
        stage(read(text_model).model, read(text_model), text_model.with_name("out.onnx"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", ["fsync", "replace", "copy_file_range"])
def test_a_failure_to_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    source = read(with_data(tmp_path / "in"))
    (tmp_path / "out").mkdir()

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail, raising=False)
    with pytest.raises(UsageError, match=os.strerror(code)):
        written(source, tmp_path / "out" / "out.onnx")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_not_committed_vanishes(tmp_path: Path) -> None:
    source = read(with_data(tmp_path / "in"))
    (tmp_path / "out").mkdir()
    with pytest.raises(RuntimeError), stage(source.model, source, tmp_path / "out" / "m.onnx"):
        raise RuntimeError
    assert list((tmp_path / "out").iterdir()) == []


def test_an_older_output_stays_until_the_commit(text_model: Path) -> None:
    out = text_model.with_name("out.onnx")
    out.write_bytes(b"older")
    source = read(text_model)
    with stage(source.model, source, out) as staged:
        assert out.read_bytes() == b"older"
        assert leftovers(out.parent) == [staged.path.name]
        staged.commit()
    assert canonical(out) == canonical(text_model)
    assert leftovers(out.parent) == []


def test_two_runs_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path, out = with_data(tmp_path / "in"), tmp_path / "out" / "m.onnx"
    first, second = read(path), read(path)
    with stage(first.model, first, out) as one, stage(second.model, second, out) as two:
        assert len(leftovers(out.parent)) == 4
        one.commit()
        two.commit()
    assert run(out)[0, 0] == 3
    assert sorted(p.name for p in out.parent.iterdir()) == ["m.onnx", "m.onnx.data"]
