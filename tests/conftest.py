"""What all tests share.

`small_models` beside this file can be imported, hypothesis draws the same examples each time, and
`--sample N` keeps N of the tests that were selected, others on every day: so each push runs a few slow ones.
"""

from __future__ import annotations

import datetime
import random

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "normfuse", derandomize=True, deadline=None, database=None, print_blob=False
)
hypothesis.settings.load_profile("normfuse")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, metavar="N", help="run N of the selected tests, by the date")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that needs a GPU says why it cannot run where there is none."""
    if item.get_closest_marker("cuda") is not None:
        from normfuse.errors import CannotVerifyError
        from normfuse.parity.providers import require

        try:
            require(["cuda"])
        except CannotVerifyError as error:
            pytest.skip(str(error))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    count = config.getoption("--sample")
    if count is None or count >= len(items):
        return
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    chosen = set(random.Random(today).sample([item.nodeid for item in items], count))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
