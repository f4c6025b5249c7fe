"""Temporary files: those of dead runs are removed, those of living ones are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from normfuse.model_io.scratch import Scratch, sweep

OWNER = """
import sys, time
from pathlib import Path
from normfuse.model_io.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]))
print(scratch.path, flush=True)
time.sleep(60)
"""


def test_a_killed_run_leaves_a_file_that_the_next_removes(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE, text=True
    ) as owner:
        stray = Path(owner.stdout.readline().strip())
        sweep(tmp_path)
        assert stray.exists()  # its owner is alive
        owner.kill()
        owner.wait()
        assert stray.exists()
        sweep(tmp_path)
        assert not stray.exists()


def test_a_sweep_touches_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / ".normfuse-notes.txt"
    other.write_text("mine")
    with Scratch(tmp_path) as scratch:
        sweep(tmp_path)
        assert scratch.path.exists()
    assert [other] == list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_a_kept_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with Scratch(tmp_path) as scratch:
        scratch.keep_as(tmp_path / "kept")
    assert (tmp_path / "kept").stat().st_mode == (tmp_path / "plain").stat().st_mode
