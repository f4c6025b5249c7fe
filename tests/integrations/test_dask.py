"""Several models on a Dask cluster: the same results as here, and work that outlives a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from normfuse import fleet
from normfuse.cli import run
from normfuse.errors import UsageError
from normfuse.fleet import Job
from normfuse.integrations.dask import cluster
from normfuse.options import Options
from normfuse.report.fleet import Outcome

distributed = pytest.importorskip("distributed")
RMS = """<ir_version: 8, opset_import: ["": 17]>
rms (float[2,32] x) => (float[2,32] y) <float eps = {1e-5}>
{ s = Mul(x, x) m = ReduceMean<axes=[-1]>(s) v = Add(m, eps) r = Sqrt(v) y = Div(x, r) }"""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local:
        yield local.scheduler_address


@pytest.mark.slow
def test_models_are_fused_on_the_cluster(scheduler: str, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        onnx.save(parser.parse_model(RMS), tmp_path / f"{name}.onnx")
    out = tmp_path / "out"
    assert run([str(tmp_path), "-o", str(out), "--dask", scheduler, "--quiet"]) == 0
    for name in ("a", "b", "c"):
        assert len(onnx.load(out / f"{name}.onnx").graph.node) == 1


def dies_once(job: Job, options: Options) -> Outcome:
    """Kills the worker the first time that it is run; the job's output marks that it was."""
    mark: Any = job.out
    if job.model.name == "deadly" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(str(job.model))


@pytest.mark.slow
def test_the_work_of_a_worker_that_dies_is_done_by_another(scheduler: str, tmp_path: Path) -> None:
    jobs = [Job(Path(name), tmp_path / name) for name in ("a", "deadly", "b", "c")]
    with cluster(scheduler) as executor:
        found = fleet._all(dies_once, jobs, Options(), executor, lambda outcome: None)
    assert (tmp_path / "deadly").exists()
    assert [outcome.error for outcome in found.outcomes] == [""] * 4


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normfuse.integrations.dask.TIMEOUT", "1s")
    with pytest.raises(UsageError, match="no Dask scheduler answers"), cluster("tcp://127.0.0.1:1"):
        pass
