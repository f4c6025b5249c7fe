"""Killed at any moment: the source is untouched, the output whole or absent, and the next run cleans up."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from io_files import leftovers, run, with_data

from normfuse.model_io import read, stage


def write(path: Path, out: Path) -> None:
    source = read(path)
    with stage(source.model, source, out) as staged:
        staged.commit()


def killed_after(path: Path, out: Path, seconds: float) -> None:
    child = os.fork()
    if child == 0:
        try:
            while True:
                write(path, out)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("kills", [30, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_kill_leaves_the_output_whole_or_absent(tmp_path: Path, kills: int) -> None:
    path, out = with_data(tmp_path / "in", ("m.onnx.data",) * 20), tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    before = (path.read_bytes(), (tmp_path / "in" / "m.onnx.data").read_bytes())
    moment = random.Random(11)
    start = time.perf_counter()
    write(path, out)
    usual = time.perf_counter() - start
    strays = 0
    for _ in range(kills):
        killed_after(path, out, moment.uniform(0, 4 * usual))
        if out.exists():
            read(out)  # whole: every reference fits its data
        strays = max(strays, len(leftovers(out.parent)))
    assert 0 < strays <= 2  # some kills did hit, and no run left more than its own
    write(path, out)
    assert leftovers(out.parent) == []
    assert sorted(p.name for p in out.parent.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert run(out)[0, 0] == sum(range(1, 21))
    assert before == (path.read_bytes(), (tmp_path / "in" / "m.onnx.data").read_bytes())
