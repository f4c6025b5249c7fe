"""What is emitted for each spelling that the tests know, by opset, data type and target.

    python benchmarks/spelling_table.py > docs/spellings.md

The spellings are those of models/ and of tests/norms/test_spellings.py; none is written here. A model is
rewritten, not run. Spellings, types and opsets that end alike share a row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

ROOT = Path(__file__).parents[1]
sys.path[:0] = [
    str(ROOT),
    *(str(ROOT / folder) for folder in ("models", "tests", "tests/norms", "tests/docs")),
]

import build  # noqa: E402
import spelled  # noqa: E402
import test_spellings as known  # noqa: E402

import normfuse  # noqa: E402
from normfuse.report.reason_pages import file_name  # noqa: E402
from normfuse.report.record import Site  # noqa: E402

OPSETS = (9, 13, 17, 18, 21, 23, 24)
TARGETS = ("ort-cpu", "ort", "ort-cuda", "onnx")
DTYPES = {
    "float32": (TensorProto.FLOAT, np.dtype(np.float32)),
    "float16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bfloat16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    "float64": (TensorProto.DOUBLE, np.dtype(np.float64)),
}
FAMILIES = {
    "rmsnorm": "RMSNorm",
    "per_head_norm": "RMSNorm",
    "modulated_norm": "LayerNorm",
    "channels_first": "LayerNorm, channels first",
    "group_norm": "GroupNorm",
    "instance_norm": "InstanceNorm",
    "l2_normalize": "L2 normalization",
    "eps_outside": "LayerNorm, epsilon outside the root",
    "response_norm": "Global response normalization",
    "conv_bn": "BatchNorm",
    "gemm_bn": "BatchNorm",
}
HEAD = """\
# What becomes of every spelling

Printed by `python benchmarks/spelling_table.py > docs/spellings.md`, from the spellings of `models/` and
`tests/norms/test_spellings.py`; a test checks that it is still what the script prints.

Each spelling is written at opset {opsets}, and in {types}, as far as its operators exist there and take the
type. The columns are [targets](targets.md).

- `LayerNormalization` and the like: the operators that stand there afterwards, in order.
- *(opset 17)* behind them: the model was raised to it.
- A [reason](index.md#reasons): it was left. "outside", and a reason: the core is fused, the affine is not.
- Spellings are named as in the source. Those that end alike share a row; so do types and neighbouring opsets.
"""

Cells = tuple[str, ...]
Ending = Mapping[tuple[int, str], Cells]


@dataclass(frozen=True)
class Spelling:
    """One way to write a family; `write` gives a float32 model at some opset."""

    family: str
    name: str
    write: Callable[[], onnx.ModelProto]


def spellings() -> Iterator[Spelling]:
    """All spellings that the project's models and tests know."""
    for name, model in build.MODELS.items():
        if name.startswith("layernorm_"):
            yield Spelling("LayerNorm", name.removeprefix("layernorm_"), model)
        elif name in FAMILIES:
            yield Spelling(FAMILIES[name], name, model)
    one = {"one": np.array(1)}
    parts: list[tuple[str, Mapping[str, str], Mapping[str, object]]] = [
        ("root", known.ROOTS, known.ROOT_CONSTANTS),
        ("variance", {k: text for k, (text, _) in known.VARIANCES.items()}, known.VARIANCE_CONSTANTS),
        ("mean", known.MEANS, known.VARIANCE_CONSTANTS | one),
        ("centre", {k: text for k, (text, _) in known.CENTRES.items()}, {"two": np.float32(2)}),
        ("affine", {k: text for k, (text, *_) in known.AFFINES.items()}, known.AFFINE_CONSTANTS),
        ("woven", known.TANGLED, {}),
    ]
    for part, texts, constants in parts:
        for name, text in texts.items():
            replaced = _parts(part, text.replace("DEV", "d"))
            yield Spelling("LayerNorm", name, partial(spelled.layer_norm, dict(constants), **replaced))
            # without the mean: the parts that an RMSNorm has as well
            if part == "root" or (part == "variance" and "m)" not in text):
                text = text.replace("DEV", "x").replace("(d", "(x").replace(", d", ", x")
                replaced = _parts(part, text)
                yield Spelling("RMSNorm", name, partial(spelled.rms_norm, dict(constants), **replaced))


def _parts(part: str, text: str) -> dict[str, str]:
    if part == "variance":
        return {"square": "", "variance": text}
    return {"root": "", "affine": text} if part == "woven" else {part: text}


def written(model: onnx.ModelProto, opset: int, dtype: str) -> onnx.ModelProto | None:
    """The model at an opset and in a data type, or None where that is no valid model."""
    found = _at_opset(_in_type(model, *DTYPES[dtype]), opset)
    if found is None or not all(_takes(node, opset, dtype) for node in found.graph.node):
        return None
    for index, node in enumerate(found.graph.node):
        node.name = f"{node.op_type}_{index}"
    return found


def _at_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    """The same nodes, where the opset has them as they stand; else what onnx's converter makes of them."""
    same = onnx.ModelProto()
    same.CopyFrom(model)
    same.opset_import[0].version = opset
    for make in (lambda: same, lambda: version_converter.convert_version(model, opset)):
        try:
            found = make()
            onnx.checker.check_model(found, full_check=True)
        except (RuntimeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
        return found
    return None


def _in_type(source: onnx.ModelProto, element: int, dtype: np.dtype[np.generic]) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(source)
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = element
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = np.vectorize(_meant, otypes=[np.float64])(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(array.astype(dtype)), tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = element
    return model


def _meant(value: np.float32) -> float:
    """1/6 for a float32 that is 1/6 as far as it can be; any other number as it is."""
    near = float(Fraction(float(value)).limit_denominator(64))
    return near if np.float32(near) == value else float(value)


def _takes(node: onnx.NodeProto, opset: int, dtype: str) -> bool:
    """Whether an operator exists for the type; its first result tells, but for operators on integers."""
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    element = helper.tensor_dtype_to_string(DTYPES[dtype][0]).removeprefix("TensorProto.").lower()
    allowed = schema.inputs[0].types if schema.inputs else set()
    return not allowed or "tensor(float)" not in allowed or f"tensor({element})" in allowed


def cell(model: onnx.ModelProto, target: str) -> str:
    """What becomes of a model on a target."""
    result = normfuse.optimize(model, options=normfuse.Options(target=target, verify=False))
    after = result.model
    assert isinstance(after, onnx.ModelProto)
    version = after.opset_import[0].version
    behind = f" *(opset {version})*" if version != model.opset_import[0].version else ""
    words = dict.fromkeys(_words(site, model, after) + behind for site in _telling(result.report.sites))
    return "; ".join(words) or "*nothing found*"


def _telling(sites: Iterable[Site]) -> list[Site]:
    """The normalizations; the folds where there are none."""
    folds = ("BatchNorm", "Affine", "Residual")
    norms = [site for site in sites if site.kind not in folds]
    return norms or [site for site in sites if site.kind == "BatchNorm"]


def _words(site: Site, before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    if site.status == "left":
        return _reason(site.reason or "")
    if site.status == "folded":
        return f"folded into `{site.operator}`"
    names = {node.name for node in before.graph.node}
    mine = [n for n in after.graph.node if n.name not in names and n.name.startswith(f"{site.output}/")]
    words = " ".join(f"`{n.op_type}`" for n in mine if n.op_type != "Constant")
    return f"{words}, outside: {_reason(site.outside)}" if site.outside else words


def _reason(code: str) -> str:
    return f"[{code}](reasons/{file_name(code)})"


def ending(spelling: Spelling) -> Ending:
    """What becomes of a spelling, at each opset and in each type in which it can be written."""
    found: dict[tuple[int, str], Cells] = {}
    model = spelling.write()
    for opset in OPSETS:
        for dtype in DTYPES:
            proto = written(model, opset, dtype)
            if proto is not None:
                found[opset, dtype] = tuple(cell(proto, target) for target in TARGETS)
    return found


def rows(found: Ending) -> Iterator[tuple[str, str, Cells]]:
    """(opsets, types, cells): what ends alike, wherever it can be written, shares a row."""
    groups: list[tuple[list[str], dict[int, Cells]]] = []
    for dtype in DTYPES:
        mine = {opset: cells for (opset, d), cells in found.items() if d == dtype}
        if mine:
            _join(groups, dtype, mine)
    for dtypes, by_opset in groups:
        for first, last, cells in _runs(by_opset.get(opset) for opset in OPSETS):
            span = str(first) if first == last else f"{first} to {last}"
            yield span, ", ".join(dtypes), cells


def _join(groups: list[tuple[list[str], dict[Any, Cells]]], name: str, found: Mapping[Any, Cells]) -> None:
    """Add a name to the first group with which it agrees wherever both have cells, or to one of its own."""
    for names, known_cells in groups:
        if all(known_cells.get(key, cells) == cells for key, cells in found.items()):
            names.append(name)
            known_cells.update(found)
            return
    groups.append(([name], dict(found)))


def _runs(cells: Iterable[Cells | None]) -> Iterator[tuple[int, int, Cells]]:
    run: list[int] = []
    current: Cells | None = None
    for opset, found in (*zip(OPSETS, cells, strict=True), (0, None)):
        if found != current and current is not None:
            yield run[0], run[-1], current
        run = [*run, opset] if found == current else [opset]
        current = found


def table(family: str, members: Mapping[str, Ending]) -> str:
    """The table of one family."""
    groups: list[tuple[list[str], dict[tuple[int, str], Cells]]] = []
    for name, each in members.items():
        _join(groups, name, each)
    columns = ("spelling", "opset", "type", *TARGETS)
    lines = [f"\n## {family}\n", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for names, found in groups:
        title = ", ".join(name.replace("_", " ") for name in names)
        for span, dtypes, cells in rows(found):
            lines.append(f"| {' | '.join((title, span, dtypes, *cells))} |")
            title = "″"
    return "\n".join(lines) + "\n"


def page(chosen: Iterable[Spelling]) -> str:
    """The whole page."""
    families: dict[str, dict[str, Ending]] = {}
    for spelling in chosen:
        families.setdefault(spelling.family, {})[spelling.name] = ending(spelling)
    opsets = ", ".join(map(str, OPSETS))
    head = HEAD.format(opsets=opsets, types=", ".join(DTYPES))
    return head + "".join(table(family, members) for family, members in families.items())


if __name__ == "__main__":
    sys.stdout.write(page(spellings()))
