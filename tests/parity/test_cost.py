"""What a verification costs: how often the models are opened and run, and that this is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity_models import WIDTH, Pair, batch_norm_pair, floats, model, stack

from normfuse.parity.check import check
from normfuse.parity.inputs import Trial
from normfuse.parity.sessions import Session
from normfuse.parity.settings import Settings
from normfuse.report.comparison import cost_line

LARGE = 1 << 14


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts sessions of whole models and their runs; a run on fewer rows counts as less."""
    counts: Counter[str] = Counter()
    opened: dict[int, int] = {}
    start, run = Session.__init__, Session.run

    def counting_start(self: Session, source: Any, *args: Any, **options: Any) -> None:
        start(self, source, *args, **options)
        opened[id(self)] = options.get("threads", 0) != 1  # pieces are run on one thread
        counts["opened"] += opened[id(self)]

    def counting_run(self: Session, feed: Any, names: Any = None) -> Any:
        counts["runs"] += opened[id(self)]
        return run(self, feed, names)

    monkeypatch.setattr(Session, "__init__", counting_start)
    monkeypatch.setattr(Session, "run", counting_run)
    return counts


@pytest.fixture
def long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run counts as one that takes long."""
    monkeypatch.setattr(Trial, "heavy", property(lambda self: True))


@pytest.mark.usefixtures("long_runs")
def test_a_model_whose_run_takes_long_is_run_five_times_at_most(
    tmp_path: Path, counted: Counter[str]
) -> None:
    """Original and result on two sizes, the smaller of which costs little, and the result as deployed."""
    pair = stack(8)
    parity = check(*pair.save(tmp_path), pair.sites, Settings())
    assert parity.model.result == "equal"
    assert len(parity.model.inputs) == 2
    assert counted == {"opened": 3, "runs": 5}


@pytest.mark.usefixtures("long_runs")
def test_of_fixed_sizes_three_runs_are_enough(tmp_path: Path, counted: Counter[str]) -> None:
    pair = batch_norm_pair(size="24, 24")
    for proto in (pair.before, pair.after):
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    parity = check(*pair.save(tmp_path), pair.sites, Settings())
    assert parity.model.result == "equal"
    assert counted == {"opened": 3, "runs": 3}


@pytest.mark.usefixtures("long_runs")
def test_the_noise_of_token_tables_takes_no_session_of_its_own(tmp_path: Path, counted: Counter[str]) -> None:
    tables = floats({"t": np.random.default_rng(0).normal(size=(50, WIDTH)) + 100})
    ends = "int64[B, S] ids", f"float[B, S, {WIDTH}] y"
    body = "x = Gather(t, ids) m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) "
    one = model(*ends, body + "q = Mul(d, d) y = Mul(q, d)", tables)
    other = model(*ends, body + "q = Abs(d) p = Mul(q, q) y = Mul(p, d)", tables)
    parity = check(*Pair(one, other).save(tmp_path), [], Settings(deployed=False))
    assert parity.model.result == "equal"
    assert counted["opened"] == 2


@pytest.mark.usefixtures("long_runs")
def test_a_wrong_rewrite_is_caught_all_the_same(tmp_path: Path) -> None:
    pair = stack(8, broken=3, how="eps x10")
    assert check(*pair.save(tmp_path), pair.sites, Settings()).guilty == ("y3",)


def test_small_models_are_run_on_all_their_inputs(tmp_path: Path, counted: Counter[str]) -> None:
    pair = stack(2)
    assert len(check(*pair.save(tmp_path), pair.sites, Settings()).model.inputs) == 3
    assert counted["opened"] == 4


def test_more_than_may_be_held_is_recorded_in_runs_of_its_own(tmp_path: Path) -> None:
    pair = stack(6)
    parity = check(*pair.save(tmp_path), pair.sites, Settings(record_memory=1 << 12))
    assert {site.result for site in parity.sites.values()} == {"equal"}


def test_a_site_that_reads_an_input_needs_no_recording(tmp_path: Path, counted: Counter[str]) -> None:
    pair = batch_norm_pair()
    assert check(*pair.save(tmp_path), pair.sites, Settings(deployed=False)).guilty == ()
    assert counted["opened"] == 2


def test_the_cost_is_told_in_plain_runs(tmp_path: Path) -> None:
    pair = stack(1)
    verdict = check(*pair.save(tmp_path), pair.sites, Settings()).model
    assert 0 < verdict.plain_run < verdict.seconds
    assert "plain runs of" in cost_line(verdict)
    assert cost_line(verdict).startswith(("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"))
