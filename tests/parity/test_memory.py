"""The memory that a check may take, and models above it: certified piece by piece, never run as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from parity_models import batch_norm_pair, floats, layer_norm, model, rms_norm, save, stack

from normfuse.errors import UsageError
from normfuse.parity.check import check, verify
from normfuse.parity.memory import available, default_limit, limit_of, parse_size
from normfuse.parity.settings import Settings

GB = 10**9


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * GB),
        ("2 gb", 2 * GB),
        ("1.5GiB", 3 << 29),
        ("500M", 500_000_000),
        ("64kib", 65536),
        ("1048576", 1048576),
        ("12B", 12),
    ],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "lots", "2 GB of it", "-1GB", "0", "GB", "1iB", "1e9"])
def test_what_is_no_size_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--max-memory"):
        parse_size(text)


def test_without_a_limit_a_part_of_what_is_available_is_the_limit() -> None:
    assert 0 < default_limit() < 2 * available()
    assert limit_of(Settings()) == default_limit()
    assert limit_of(Settings(max_memory=7)) == 7


@pytest.mark.parametrize("how", ["", "eps x10"])
def test_verify_compares_large_models_where_they_differ(tmp_path: Path, how: str) -> None:
    before, after = stack(3, broken=1, how=how).save(tmp_path)
    verdict = verify(before, after, Settings(max_memory=1))
    assert verdict.result == ("failed" if how else "certified-by-site")
    assert verdict.outputs == ()
    assert any("3 values of both models are computed by other nodes" in note for note in verdict.notes)


def test_a_weight_that_differs_is_found_without_running_the_model(tmp_path: Path) -> None:
    pair = stack(3)
    for tensor in pair.after.graph.initializer:
        if tensor.name == "w2":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 1.001, "w2"))
    verdict = verify(*pair.save(tmp_path), Settings(max_memory=1))
    assert verdict.result == "failed"
    assert "'h2'" in verdict.detail


def test_models_that_are_the_same_need_no_piece(tmp_path: Path) -> None:
    before, _ = stack(2).save(tmp_path)
    assert verify(before, before, Settings(max_memory=1)).result == "certified-by-site"


def test_other_inputs_or_outputs_are_told_without_a_run(tmp_path: Path) -> None:
    paths = {}
    for name, x, y in (("a", "x", "y"), ("b", "u", "y"), ("c", "x", "z")):
        proto = model(f"float[N] {x}", f"float[N] {y}", f"{y} = Mul({x}, two)", floats({"two": [2.0, 2.0]}))
        paths[name] = save(proto, tmp_path / f"{name}.onnx")
    a, b, c = paths.values()
    assert "different inputs" in verify(a, b, Settings(max_memory=1)).detail
    assert "different outputs" in verify(a, c, Settings(max_memory=1)).detail


@pytest.mark.parametrize("how", ["", "bias dropped"])
def test_a_fold_in_a_large_image_is_certified_on_a_crop(tmp_path: Path, how: str) -> None:
    """The image alone would take 3 GB."""
    pair = batch_norm_pair(how, size="16384, 16384")
    parity = check(*pair.save(tmp_path), pair.sites, Settings(max_memory=1000))
    assert parity.sites["y"].result == ("failed" if how else "equal")


@pytest.mark.parametrize("how", ["", "scale squared", "bias dropped"])
def test_without_room_for_float64_the_original_stands_for_the_truth(tmp_path: Path, how: str) -> None:
    pair = batch_norm_pair(how)
    parity = check(*pair.save(tmp_path), pair.sites, Settings(max_memory=100))
    assert parity.sites["y"].result == ("failed" if how else "equal")


MEASURE = """
import sys, threading, time
from normfuse.cli import run

peak, done = {}, False
def watch():
    while not done:
        for line in open("/proc/self/status"):
            name, _, rest = line.partition(":")
            if name in ("RssAnon", "RssShmem"):
                peak[name] = max(peak.get(name, 0), int(rest.split()[0]))
        time.sleep(0.005)

thread = threading.Thread(target=watch)
thread.start()
code = run(sys.argv[1:])
done = True
thread.join()
print("code", code, "peak", sum(peak.values()))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_model_of_8_gb_is_certified_within_2_gb(tmp_path: Path) -> None:
    """Counted is the process's own memory: pages of the mapped data file can be dropped at any time."""
    path = large_model(tmp_path, 8 * GB)
    out = tmp_path / "out.onnx"
    line = [sys.executable, "-c", MEASURE, str(path), "-o", str(out), "--max-memory", "2GB"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    words = done.stdout.split()
    assert words[words.index("code") + 1] == "0"
    assert "each rewrite certified alone" in done.stdout
    assert int(words[words.index("peak") + 1]) * 1024 < 2 * GB
    kinds = [node.op_type for node in onnx.load(out, load_external_data=False).graph.node]
    assert "BatchNormalization" not in kinds
    assert "ReduceMean" not in kinds
    assert kinds.count("LayerNormalization") == kinds.count("SimplifiedLayerNormalization") == 4


def large_model(folder: Path, size: int, side: int = 16384) -> Path:
    """A patch embedding of two Conv+BN, then LayerNorms and RMSNorms in turn among MatMuls of 1 GB each."""
    rng = np.random.default_rng(0)
    small = {"proj": rng.normal(size=(64, side)) / 8, "two": 2.0}
    for k in range(2):
        small |= {f"{n}{k}": rng.normal(1, 0.3, 64) for n in ("s", "o", "m")} | {
            f"v{k}": rng.uniform(0.5, 2, 64)
        }
    shapes = {"c0": (64, 3, 3, 3), "c1": (64, 64, 3, 3)}
    body = " ".join(
        f"a{k} = Conv<pads=[1, 1, 1, 1]>({x}, c{k}) n{k} = BatchNormalization(a{k}, s{k}, o{k}, m{k}, v{k})"
        for k, x in ((0, "image"), (1, "n0"))
    )
    body += " t = Transpose<perm=[0, 2, 3, 1]>(n1) h0 = MatMul(t, proj)"
    count = -(-size // (4 * side * side))
    for k in range(count):
        small |= {f"g{k}": rng.normal(1, 0.3, side), f"b{k}": rng.normal(size=side)}
        norm = layer_norm if k % 2 else rms_norm
        affine = (f"g{k}", f"b{k}") if k % 2 else (f"g{k}",)
        body += f" {norm(f'h{k}', f'y{k}', 1e-5, *affine)} h{k + 1} = MatMul(y{k}, w{k})"
        shapes[f"w{k}"] = (side, side)
    proto = model("float[B, 3, 8, 8] image", f"float[B, 8, 8, {side}] h{count}", body, floats(small))
    offset = 0
    for name, dims in shapes.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
        tensor.data_location, length = TensorProto.EXTERNAL, 4 * int(np.prod(dims))
        for key, value in (("location", "m.data"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        proto.graph.initializer.append(tensor)
        offset += -(-length // 4096) * 4096
    with (folder / "m.data").open("wb") as data:
        data.write(rng.normal(0, 0.05, 64 * 67 * 9 + 8192).astype(np.float32).tobytes())
        data.truncate(offset)
    return save(proto, folder / "m.onnx")
