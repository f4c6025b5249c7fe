"""External data: found and checked before it is read; links as model caches use them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from io_files import N, graph_of, reference, run, with_data

from normfuse.errors import InputError
from normfuse.model_io import copy_unchanged, from_ir, from_proto, original, read, stage


def test_weights_stay_on_disk_until_they_are_asked_for(tmp_path: Path) -> None:
    source = read(with_data(tmp_path))
    tensor = source.model.graph.initializers["w1"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert tensor.raw is None
    np.testing.assert_array_equal(tensor.numpy(), np.full(N, 2, np.float32))
    assert source.data_files == ((tmp_path / "m.onnx.data").resolve(),)
    assert source.size == source.path.stat().st_size + 8 * N


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (reference("w", "absent.bin"), "is missing"),
        (reference("w", "../data.bin"), "out of the model's folder"),
        (reference("w", "inner/../../data.bin"), "out of the model's folder"),
        (reference("w", "..\\data.bin"), "out of the model's folder"),
        (reference("w", "/etc/hostname"), "absolute path"),
        (reference("w", "C:\\data.bin"), "absolute path"),
        (reference("w", ""), "no valid location"),
        (reference("w", "folder"), "not a file"),
        (reference("w", "leads_out"), "a link out of the model's folder"),
        (reference("w", "data.bin", offset=4 * N), "has only 4096"),
        (reference("w", "data.bin", length=None, dims=[N + 1]), "has only 4096"),
        (reference("w", "data.bin", dims=[2**60]), "takes"),
        (reference("w", "data.bin", offset=-8), "negative"),
        (reference("w", "data.bin", length=-8), "negative"),
        (reference("w", "data.bin", length=8), "is 8 bytes long"),
        (reference("w", "data.bin", dims=[-1]), "negative dimension"),
    ],
)
def test_unsafe_or_wrong_references_are_refused(
    tmp_path: Path, tensor: onnx.TensorProto, message: str
) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (folder / "data.bin").write_bytes(b"\0" * 4 * N)
    (tmp_path / "data.bin").write_bytes(b"\0" * 4 * N)
    (folder / "leads_out").symlink_to(tmp_path / "data.bin")
    path = folder / "m.onnx"
    onnx.save(graph_of([tensor]), path)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert "'w'" in str(caught.value)


@pytest.mark.parametrize("key", ["offset", "length"])
def test_an_offset_that_is_no_number_is_refused(tmp_path: Path, key: str) -> None:
    tensor = reference("w", "data.bin", **{key: "many"})  # type: ignore[arg-type]
    onnx.save(graph_of([tensor]), tmp_path / "m.onnx")
    with pytest.raises(InputError, match=f"the {key} 'many'"):
        read(tmp_path / "m.onnx")


def test_without_offset_and_length_the_tensor_is_the_file(tmp_path: Path) -> None:
    np.full(N, 3, np.float32).tofile(tmp_path / "data.bin")
    onnx.save(graph_of([reference("w", "data.bin", None, None)]), tmp_path / "m.onnx")
    source = read(tmp_path / "m.onnx")
    with stage(source.model, source, tmp_path / "out.onnx") as staged:
        assert run(staged.commit())[0, 0] == 3


def cache_of_links(folder: Path) -> Path:
    """blobs with hashed names, and a snapshot of links to them."""
    with_data(folder / "blobs")
    (folder / "snapshot").mkdir()
    for name, blob in (("m.onnx", "e1"), ("m.onnx.data", "e2")):
        (folder / "blobs" / name).rename(folder / "blobs" / blob)
        (folder / "snapshot" / name).symlink_to(f"../blobs/{blob}")
    return folder / "snapshot" / "m.onnx"


def test_links_of_a_model_cache_are_followed(tmp_path: Path) -> None:
    source = read(cache_of_links(tmp_path))
    assert source.model.graph.initializers["w1"].const_value.numpy()[0] == 2


@pytest.mark.parametrize("writer", ["stage", "copy_unchanged"])
def test_beside_a_link_the_output_gets_its_own_data(tmp_path: Path, writer: str) -> None:
    """A file in the snapshot could not use a link that leads out of it: no runtime follows that."""
    source = read(cache_of_links(tmp_path))
    out = source.path.with_name("out.onnx")
    staged = stage(source.model, source, out) if writer == "stage" else copy_unchanged(source, out)
    with staged:
        assert run(staged.path)[0, 0] == 3
        staged.commit()
    assert run(out)[0, 0] == 3
    assert not out.is_symlink()
    assert (out.parent / "out.onnx.data").stat().st_size == 8 * N


def test_two_hard_links_to_the_data_are_read(tmp_path: Path) -> None:
    path = with_data(tmp_path)
    os.link(tmp_path / "m.onnx.data", tmp_path / "other.data")
    assert read(path).model.graph.initializers["w0"].const_value.numpy()[0] == 1


def test_a_message_in_memory_needs_the_folder_of_its_data(tmp_path: Path) -> None:
    proto = onnx.load(with_data(tmp_path), load_external_data=False)
    with pytest.raises(InputError, match="in which folder"):
        from_proto(proto)
    with original(from_proto(proto, tmp_path)) as path:
        assert run(path)[0, 0] == 3


def test_a_model_of_onnx_ir_knows_its_folder(tmp_path: Path) -> None:
    source = from_ir(ir.load(with_data(tmp_path)))
    with original(source) as path:
        assert path.parent == tmp_path  # the data is used where it lies
        assert run(path)[0, 0] == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_a_tensor_without_elements_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"")
    onnx.save(graph_of([reference("w", "data.bin", 0, 0, [0])]), tmp_path / "m.onnx")
    assert read(tmp_path / "m.onnx").model.graph.initializers["w"].const_value.tobytes() == b""


def test_data_of_a_constant_node_is_external_too(tmp_path: Path) -> None:
    np.full(N, 5, np.float32).tofile(tmp_path / "data.bin")
    constant = onnx.helper.make_node("Constant", [], ["w"], value=reference("w", "data.bin"))
    model = graph_of([], constant, onnx.helper.make_node("Add", ["x", "w"], ["y"]))
    onnx.save(model, tmp_path / "m.onnx")
    source = read(tmp_path / "m.onnx")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with stage(source.model, source, elsewhere / "out.onnx") as staged:
        staged.commit()
    written = read(elsewhere / "out.onnx").model.graph[0].attributes["value"].as_tensor()
    assert isinstance(written, ir.ExternalTensor)
    assert written.location == "out.onnx.data"
    assert written.numpy()[0] == 5
