"""An existing Dask cluster as an executor for several models (`--dask ADDRESS`, extra `normfuse[dask]`).

The workers read the models from, and write them to, a file system that they share with the caller.
Work of a worker that dies is done again by another.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from normfuse.errors import UsageError

TIMEOUT = "10s"


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """The executor of the cluster whose scheduler is at `address`, such as "tcp://10.0.0.1:8786".

    Raises UsageError where dask is not installed or the scheduler does not answer.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--dask needs the package distributed", hint="pip install normfuse[dask]") from error
    try:
        client: Any = Client(address, timeout=TIMEOUT)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address!r}", hint=str(error).split("\n")[0]
        ) from error
    with client:
        executor: Executor = client.get_executor(pure=False)
        yield executor
