"""The tools that a large or a damaged model is given to as well, each asked to do its whole job.

They are installed in a Python of their own (`--peers PYTHON`), so that nothing of theirs is needed here.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

PATIENCE = 20  # seconds after which a tool counts as hung on one small file
OTHERS = {
    "onnxruntime, offline": "import onnxruntime as o; s = o.SessionOptions(); s.log_severity_level = 4;"
    "s.optimized_model_filepath = OUT; o.InferenceSession(IN, s, providers=['CPUExecutionProvider'])",
    "onnxslim": "import onnxslim; onnxslim.slim(IN, OUT)",
    "onnxsim": "import onnx, onnxsim; m, ok = onnxsim.simplify(IN); onnx.save(m, OUT)",
    "onnxscript optimizer": "import onnx_ir as ir, onnxscript.optimizer as o; m = ir.load(IN);"
    "o.optimize(m); ir.save(m, OUT)",
    "onnxscript rewriter": "import onnx_ir as ir, onnxscript.rewriter as r; m = ir.load(IN);"
    "ir.save(r.rewrite(m), OUT)",
}
_TRIES = f"""
import signal, sys
code, OUT, report, *files = sys.argv[1:]
signal.alarm(6 * {PATIENCE})
with open(report, "a") as lines:
    for IN in files:
        try:
            exec(code, {{"IN": IN, "OUT": OUT}})
            lines.write("model\\n")
        except BaseException:
            lines.write("error\\n")
        lines.flush()
        signal.alarm({PATIENCE})
"""


def command_lines(python: str, path: Path, out: Path) -> dict[str, list[str]]:
    """How to start each tool on a model; none where there is no Python that has them."""
    given = f"IN, OUT = {str(path)!r}, {str(out)!r}; "
    return {name: [python, "-c", given + code] for name, code in OTHERS.items()} if python else {}


def outcomes(python: str, tool: str, files: Sequence[Path], folder: Path) -> Counter[str]:
    """What a tool makes of each file: "model", "error", "died" (the process), or "hung"."""
    tally: Counter[str] = Counter()
    report, out = folder / "report.txt", folder / "out.onnx"
    left = list(map(str, files))
    while left:
        report.write_text("")
        line = [python, "-c", _TRIES, OTHERS[tool], str(out), str(report), *left]
        done = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        lines = report.read_text().split()
        tally.update(lines)
        left = left[len(lines) :]
        if left:
            tally["hung" if done.returncode == -14 else "died"] += 1  # -14: SIGALRM
            left = left[1:]
    return tally
