"""What other tools make of the same models.

Each runs in a Python that has it, in a process of its own for all models: one that the command line names,
else the one that runs this. It is asked to do its whole job, with its defaults.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 240  # seconds after which a tool is stopped

FIND = "import importlib.util as u, sys; sys.exit(any(u.find_spec(name) is None for name in sys.argv[1:]))"
LOOP = """
import sys
for source, out in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        run(source, out)
    except Exception as error:
        print(type(error).__name__, error, file=sys.stderr)
"""


@dataclass(frozen=True)
class Peer:
    """packages: what its Python has to have. code: defines `run` from a file to a file."""

    name: str
    packages: tuple[str, ...]
    code: str


PEERS = (
    Peer("onnxruntime.transformers", ("onnxruntime", "torch"), """
from onnxruntime.transformers import optimizer
def run(source, out): optimizer.optimize_model(source).save_model_to_file(out)
"""),
    Peer("onnxsim", ("onnxsim",), """
import onnx, onnxsim
def run(source, out): onnx.save(onnxsim.simplify(source)[0], out)
"""),
    Peer("onnxslim", ("onnxslim",), """
import onnxslim
def run(source, out): onnxslim.slim(source, out)
"""),
    Peer("onnxscript optimizer", ("onnxscript",), """
import onnx_ir, onnxscript.optimizer
def run(source, out):
    model = onnx_ir.load(source)
    onnxscript.optimizer.optimize(model)
    onnx_ir.save(model, out)
"""),
    Peer("onnxscript ort_fusions", ("onnxscript",), """
import onnx_ir
from onnxscript.rewriter.ort_fusions import optimize_for_ort
def run(source, out): onnx_ir.save(optimize_for_ort(onnx_ir.load(source))[0], out)
"""),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """models: what a peer wrote, by the name of the model. missing: why it could not be asked at all."""

    models: Mapping[str, bytes] = field(default_factory=dict)
    missing: str = ""


def run(peer: Peer, pythons: Sequence[str], models: Mapping[str, bytes], folder: Path) -> Outcome:
    """Let a peer rewrite every model.

    pythons: interpreters that may have it, the first that does is taken. folder: an empty one.
    """
    python = next((p for p in pythons if _has(p, peer.packages)), None)
    if python is None:
        return Outcome(missing=f"no Python with {' and '.join(peer.packages)}; name one with --peers")
    pairs = {name: (folder / f"{k}.onnx", folder / f"{k}.out.onnx") for k, name in enumerate(models)}
    for name, (source, _) in pairs.items():
        source.write_bytes(models[name])
    line = [python, "-c", peer.code + LOOP, *(str(path) for pair in pairs.values() for path in pair)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(missing=f"stopped after {LIMIT} s")
    if done.returncode:
        return Outcome(missing=(done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
    return Outcome({name: out.read_bytes() for name, (_, out) in pairs.items() if out.exists()})


def pythons(named: Sequence[str]) -> tuple[str, ...]:
    """The interpreters to look into: those that are named, then this one."""
    return (*named, sys.executable)


def _has(python: str, packages: Sequence[str]) -> bool:
    try:
        return subprocess.run([python, "-c", FIND, *packages], check=False).returncode == 0
    except OSError:
        return False
