"""What other tools make of the spellings and look-alikes that the project knows: fused, left, wrong, failed.

    python benchmarks/peers.py --peers PYTHON            prints the table
    python benchmarks/peers.py --peers PYTHON --write    and puts it into docs/peers.md
    python benchmarks/peers.py --names                   also which cases were wrong or failed

PYTHON is an interpreter that has the tools which this one has not. Every tool is run with its defaults, each
model in a process of its own. The judge is onnxruntime without optimizations, and float64:

    fused    the statistics are gone (ReduceMean and the like; for a BatchNorm, BatchNormalization)
    wrong    on some input the result is off by more than 0.1 % from the original, and from the original in
             float64; or it is NaN where that is not; or it has another shape
    failed   the tool stopped with an error, or its result does not load or run
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import spelling_table  # which also puts the folders of models and tests on the path
import test_look_alikes
import test_traps
from compared.peers import PEERS, Peer, pythons
from reason_pages import PAGES, example

PAGE = Path(__file__).parents[1] / "docs" / "peers.md"
BEGIN, END = "<!-- made by benchmarks/peers.py -->\n", "<!-- end -->"
OPSET = 17
LIMIT = 60  # seconds for one model
SIDE_BY_SIDE = 4  # tools
OFF = 1e-3
SIZES = (2, 3, 5, 4, 6)  # of dynamic dimensions, in the order in which they come
STATISTICS = frozenset({"ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"})
GONE = {"BatchNorm": frozenset({"BatchNormalization"}), "GroupNorm": frozenset({"Mul"})}
OTHER, LOOK_ALIKES = "other norms", "look-alikes"
SQUARED = {spelling_table.spelled.layer_norm: "d", spelling_table.spelled.rms_norm: "x"}
GROUPS = {
    "LayerNorm": "LayerNorm",
    "RMSNorm": "RMSNorm",
    "BatchNorm": "BatchNorm",
    "LayerNorm, channels first": OTHER,
    "GroupNorm": OTHER,
    "InstanceNorm": OTHER,
}
"""The group of each family that has an exact operator; the others are to be left, so they are look-alikes."""
TOOLS = (
    Peer("normfuse", ("normfuse",), """
from normfuse import optimize
def run(source, out): optimize(source, out)
"""),
    Peer("onnxruntime, offline", ("onnxruntime",), """
import onnxruntime
def run(source, out):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 4, out
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
"""),
    *PEERS,
)  # fmt: skip
LOOP = f"""
import importlib, os, signal, sys
for name in sys.argv.pop(1).split():  # before each model has a process of its own
    importlib.import_module(name)
for source, out in zip(sys.argv[1::2], sys.argv[2::2]):
    if not os.fork():
        signal.alarm({LIMIT})
        try:
            run(source, out)
        except BaseException:
            os._exit(1)
        os._exit(0)
    if os.wait()[1] and os.path.exists(out):
        os.remove(out)
"""


@dataclass(frozen=True)
class Case:
    """One small model. gone: the operators that are not there any more once it is fused."""

    name: str
    group: str
    model: onnx.ModelProto
    gone: frozenset[str] = frozenset()


@dataclass
class Tally:
    """What became of a group of cases; names of those that were wrong or failed."""

    total: int = 0
    fused: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def cases() -> Iterator[Case]:
    """Every spelling in float32, and every look-alike of the tests and of the pages on reasons."""
    for spelling in spelling_table.spellings():
        model = spelling_table.written(_with_pow(spelling.write)(), OPSET, "float32")
        if model is not None:
            group = GROUPS.get(spelling.family, LOOK_ALIKES)
            yield Case(spelling.name, group, model, GONE.get(spelling.family, STATISTICS))
    yield Case("convnet", "BatchNorm", spelling_table.build.MODELS["convnet"](), GONE["BatchNorm"])
    for name, (model, _) in test_traps.LEFT.items():
        yield Case(name, LOOK_ALIKES, model)
    for name, model in test_look_alikes.LOOK_ALIKES.items():
        yield Case(name, LOOK_ALIKES, model)
    for path in sorted(PAGES.glob("*.md")):
        yield Case(path.stem, LOOK_ALIKES, example(path.read_text("utf-8")))


def _with_pow(write: Callable[[], onnx.ModelProto]) -> Callable[[], onnx.ModelProto]:
    """The same spelling with torch's square, Pow(d, 2), where it is about another part.

    Every tool knows that one, so that only the part in question decides.
    """
    if not isinstance(write, partial) or write.func not in SQUARED or "square" in write.keywords:
        return write
    square = f"s = Pow({SQUARED[write.func]}, exponent)"
    return partial(write.func, {**write.args[0], "exponent": np.float32(2)}, square=square, **write.keywords)


def rewritten(
    tool: Peer, named: Sequence[str], found: Sequence[Case], folder: Path
) -> list[bytes | None] | None:
    """What a tool writes for each case, None where it failed; None where no Python has the tool."""
    wanted = "import importlib.util as u, sys; sys.exit(any(u.find_spec(n) is None for n in sys.argv[1:]))"
    known = [sys.executable] if tool is TOOLS[0] else pythons(named)
    python = next((p for p in known if not subprocess.call([p, "-c", wanted, *tool.packages])), None)
    if python is None:
        return None
    pairs = [(folder / f"{k}.onnx", folder / f"{k}.out.onnx") for k in range(len(found))]
    for case, (source, out) in zip(found, pairs, strict=True):
        source.write_bytes(case.model.SerializeToString())
        out.unlink(missing_ok=True)
    words = [str(path) for pair in pairs for path in pair]
    subprocess.run(
        [python, "-c", tool.code + LOOP, " ".join(tool.packages), *words], capture_output=True, check=False
    )
    return [out.read_bytes() if out.exists() else None for _, out in pairs]


def feeds(model: onnx.ModelProto) -> list[dict[str, np.ndarray]]:
    """Ordinary rows, rows far from zero, rows of zeros, constant rows; other inputs are ordinary."""
    rng, symbols = np.random.default_rng(0), dict[str, int]()
    constants = {tensor.name for tensor in model.graph.initializer}
    ordinary = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or symbols.setdefault(d.dim_param, SIZES[len(symbols)]) for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if value.name not in constants:
            array = rng.normal(size=shape) if np.issubdtype(dtype, np.floating) else np.ones(shape)
            ordinary[value.name] = array.astype(dtype)
    first = next(iter(ordinary))
    x = ordinary[first]
    others = (x + np.asarray(30, x.dtype), np.zeros_like(x), np.full_like(x, 3))
    return [ordinary, *({**ordinary, first: other} for other in others)]


def outputs(model: bytes, inputs: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]] | None:
    """What a model computes without optimizations; None where it does not load or run."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return [session.run(None, dict(feed)) for feed in inputs]
    except Exception:  # onnxruntime raises a class of its own for each failure
        return None


def differ(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> bool:
    """Whether two runs differ: by more than OFF relative to the largest output, in NaN, or in shape."""
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape or not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return True
        finite = np.isfinite(x)
        x, y = x[finite].astype(float), y[finite].astype(float)
        if x.size and np.abs(x - y).max() > OFF * max(np.abs(y).max(), 1e-30):
            return True
    return False


class Judge:
    """Holds results against the original, and against the original in float64."""

    def __init__(self, case: Case) -> None:
        self.inputs = feeds(case.model)
        self.original = outputs(case.model.SerializeToString(), self.inputs)
        self.case = case

    @cache  # noqa: B019  # one judge for each case lives as long as the program
    def truth(self) -> list[list[np.ndarray]] | None:
        try:
            double = spelling_table.written(
                self.case.model, self.case.model.opset_import[0].version, "float64"
            )
        except onnx.defs.SchemaError:  # operators that a model brings along
            return None
        wide = [
            {k: v.astype(float) if v.dtype == np.float32 else v for k, v in f.items()} for f in self.inputs
        ]
        return None if double is None else outputs(double.SerializeToString(), wide)

    def is_wrong(self, found: list[list[np.ndarray]]) -> bool:
        assert self.original is not None
        bad = [k for k, ours in enumerate(found) if differ(ours, self.original[k])]
        truth = self.truth() if bad else None
        return any(truth is None or differ(found[k], truth[k]) for k in bad)


def tally(judges: Sequence[Judge], results: Sequence[bytes | None]) -> dict[str, Tally]:
    """Count what a tool made of the cases, group by group."""
    counts: dict[str, Tally] = {}
    for judge, result in zip(judges, results, strict=True):
        case, count = judge.case, counts.setdefault(judge.case.group, Tally())
        count.total += 1
        found = None if result is None else outputs(result, judge.inputs)
        if found is None or result is None:
            count.failed.append(case.name)
        elif judge.is_wrong(found):
            count.wrong.append(case.name)
        else:
            left = {node.op_type for node in onnx.load_from_string(result).graph.node}
            count.fused += bool(case.gone) and not case.gone & left
    return counts


Counts = Mapping[str, Tally]


def table(counts: Mapping[str, Counts | None]) -> str:
    """A row for each tool: what it fused of each group, then what it got wrong."""
    totals = {
        group: count.total for group, count in next(c for c in counts.values() if c is not None).items()
    }
    groups = [group for group in totals if group != LOOK_ALIKES]
    spelled = sum(totals[group] for group in groups)
    heads = ["tool", *(f"{group}: fused of {totals[group]}" for group in groups), f"wrong, of {spelled}",
             f"look-alikes: wrong, of {totals[LOOK_ALIKES]}", "failed"]  # fmt: skip
    rows = [heads, ["---"] * len(heads)]
    rows += [
        [name, *(_cells(count, groups) if count else ["not installed"])] for name, count in counts.items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _cells(count: Counts, groups: Sequence[str]) -> list[str]:
    wrong = sum(len(count[group].wrong) for group in groups)
    failed = sum(len(each.failed) for each in count.values())
    return [
        *(str(count[group].fused) for group in groups),
        *map(str, (wrong, len(count[LOOK_ALIKES].wrong), failed)),
    ]


def names(counts: Mapping[str, Counts | None]) -> Iterator[str]:
    """Which cases each tool got wrong or failed at."""
    for tool, count in counts.items():
        for group, each in (count or {}).items():
            for what, found in (("wrong", each.wrong), ("failed", each.failed)):
                if found:
                    yield f"{tool}, {group}, {what}: {', '.join(found)}"


def measure(tools: Sequence[Peer], named: Sequence[str]) -> dict[str, Counts | None]:
    """Run every tool on every case that runs by itself."""
    judges = [judge for judge in map(Judge, cases()) if judge.original is not None]
    found = [judge.case for judge in judges]

    def results(tool: Peer) -> list[bytes | None] | None:
        with tempfile.TemporaryDirectory() as folder:
            return rewritten(tool, named, found, Path(folder))

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        written = list(pool.map(results, tools))
    return {t.name: None if w is None else tally(judges, w) for t, w in zip(tools, written, strict=True)}


def main() -> None:
    """Print the table, or put it into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", action="append", default=[], metavar="PYTHON")
    parser.add_argument("--names", action="store_true", help="also which cases were wrong or failed")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    arguments = parser.parse_args()
    counts = measure(TOOLS, arguments.peers)
    printed = table(counts)
    print(printed)
    if arguments.names:
        print("\n".join(names(counts)))
    if arguments.write:
        head, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{printed}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
