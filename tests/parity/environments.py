"""Virtual environments with another onnxruntime, made once and kept: two of them cannot be in the same one.

They lie in $NORMFUSE_TEST_CACHE, or else in the folder for temporary files, and run this checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMMAND = "from normfuse.cli import main; main()"


class CannotInstallError(Exception):
    """pip could not install a package; the text is what it said last."""


def environment(*packages: str) -> Path:
    """The Python of an environment with these packages and what normfuse needs.

    Raises CannotInstallError.
    """
    root = Path(os.environ.get("NORMFUSE_TEST_CACHE") or Path(tempfile.gettempdir()) / "normfuse-test-cache")
    wanted = [*packages, *_dependencies()]
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:12]
    folder = root / f"venv-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "venv" / "bin" / "python"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be making it
        if not (folder / "ready").exists():
            _run(sys.executable, "-m", "venv", "--clear", str(folder / "venv"))
            pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            _run(str(python), *pip, *wanted)
            (folder / "ready").touch()
    return python


def run(python: Path, *arguments: str | Path, code: str = COMMAND) -> subprocess.CompletedProcess[str]:
    """The command line, or other code, in an environment."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])}
    line = [str(python), "-c", code, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False, env=variables)


def _dependencies() -> list[str]:
    """What normfuse itself needs, onnxruntime aside."""
    if sys.version_info >= (3, 11):
        import tomllib

        loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        return list(loaded["project"]["dependencies"])
    from importlib.metadata import requires

    return [line for line in requires("normfuse") or () if "extra ==" not in line]


def _run(*line: str) -> None:
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CannotInstallError(said[-1] if said else f"{line[0]} failed")
