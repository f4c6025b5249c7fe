"""Sizes for dynamic dimensions: one value a symbol over all inputs, sums of symbols evaluated.

    input_ids       [batch, sequence]                    batch=2 sequence=7 past=3
    attention_mask  [batch, past + sequence]             2 x 10
    past.0.key      [batch, 4, past, 16]                 2 x 4 x 3 x 16

A dimension without a real name ("?", "-1", none) is a symbol of its own, whatever it looks like elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from normfuse.errors import UsageError

ANONYMOUS = re.compile(r"^(\?.*|-1|none|)$", re.IGNORECASE)
MASK = re.compile(r"^(?!.*(^|_)encoder_).*mask", re.IGNORECASE)
PAST = re.compile(r"^(?!.*[._]encoder[._]).*(past|cache)", re.IGNORECASE)
TOKENS = re.compile(r"ids|embeds|tokens", re.IGNORECASE)
TOKEN = re.compile(r"\s*(?:([A-Za-z_][\w.:]*)|(\d+)|(//|[-+*/(),]))")
FUNCTIONS: dict[str, Callable[..., int]] = {"max": max, "min": min, "floor": int}
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a // max(b, 1),
    ast.FloorDiv: lambda a, b: a // max(b, 1),
}


@dataclass(frozen=True)
class Size:
    """A dimension: a number, a symbol, or an expression over symbols."""

    symbols: tuple[str, ...]
    tree: ast.expr

    def value(self, symbols: Mapping[str, int]) -> int:
        """The number that it stands for."""
        named = {f"v{i}": symbols[name] for i, name in enumerate(self.symbols)}
        return max(0, _evaluate(self.tree, named))


def parse(text: str) -> Size:
    """Read "past + sequence", "2*S", "max(1, S)"; text that is no such expression is one symbol."""
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = TOKEN.match(text, at)
        if not found:
            return Size((text,), ast.Name("v0"))
        tokens.append(found.groups())
        at = found.end()
    names: dict[str, str] = {}
    words = []
    for i, (name, number, sign) in enumerate(tokens):
        call = i + 1 < len(tokens) and tokens[i + 1][2] == "("
        if name and call and name.lower() in FUNCTIONS:
            words.append(name.lower())
        elif name:
            words.append(names.setdefault(name, f"v{len(names)}"))
        else:
            words.append(number or sign)
    try:
        tree = ast.parse(" ".join(words), mode="eval").body
        _evaluate(tree, dict.fromkeys(names.values(), 1))
    except (SyntaxError, ValueError):
        return Size((text,), ast.Name("v0"))
    return Size(tuple(names), tree)


def _evaluate(tree: ast.expr, names: Mapping[str, int]) -> int:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name) and tree.id in names:
        return names[tree.id]
    if isinstance(tree, ast.BinOp) and type(tree.op) in OPERATORS:
        return OPERATORS[type(tree.op)](_evaluate(tree.left, names), _evaluate(tree.right, names))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_evaluate(tree.operand, names)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in FUNCTIONS:
        return FUNCTIONS[tree.func.id](*(_evaluate(a, names) for a in tree.args))
    raise ValueError("not an expression over sizes")


@dataclass(frozen=True)
class Symbol:
    """One dynamic dimension, and the role that its name and place give it."""

    name: str
    role: str  # batch, past, total, height, width, other


@dataclass(frozen=True)
class Shapes:
    """The shapes of all inputs, over shared symbols; sequence: the symbol that counts the tokens, if any."""

    sizes: Mapping[str, tuple[Size, ...]]
    symbols: tuple[Symbol, ...]
    sequence: str = ""

    def of(self, name: str, values: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(size.value(values) for size in self.sizes[name])


def read_shapes(inputs: Mapping[str, onnx.TypeProto]) -> Shapes:
    """The shapes of tensor inputs."""
    sizes: dict[str, tuple[Size, ...]] = {}
    symbols: dict[str, Symbol] = {}
    alone: set[str] = set()
    for name, kind in inputs.items():
        dims = [_dimension(name, i, dim) for i, dim in enumerate(kind.tensor_type.shape.dim)]
        sizes[name] = tuple(dims)
        for axis, size in enumerate(dims):
            for symbol in size.symbols:
                found = Symbol(symbol, _role(name, symbol, axis, dims))
                # A symbol that stands alone somewhere tells more of its role than one inside a sum.
                if symbol not in symbols or (len(size.symbols) == 1 and symbol not in alone):
                    symbols[symbol] = found
                alone.update([symbol] if len(size.symbols) == 1 else [])
    known = tuple(replace(s, role=_role_beside(s, sizes, symbols)) for s in symbols.values())
    return Shapes(sizes, known, _sequence(sizes, known))


def _role_beside(symbol: Symbol, sizes: Mapping[str, tuple[Size, ...]], all_: Mapping[str, Symbol]) -> str:
    """A mask's own length, beside a past, is that of the past and the sequence."""
    if symbol.role != "other" or not any(other.role == "past" for other in all_.values()):
        return symbol.role
    used = [name for name, dims in sizes.items() if any(symbol.name in size.symbols for size in dims)]
    return "total" if all(MASK.search(name) for name in used) else symbol.role


def _sequence(sizes: Mapping[str, tuple[Size, ...]], symbols: Sequence[Symbol]) -> str:
    """The symbol of role "other" in what looks like tokens, a decoder's rather than an encoder's."""
    others = {s.name for s in symbols if s.role == "other"}
    names = sorted(
        sizes, key=lambda name: (not TOKENS.search(name), "encoder" in name.replace("decoder", ""))
    )
    found = (n for name in names for size in sizes[name] for n in size.symbols if n in others)
    return next(found, "")


def _dimension(name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> Size:
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
        return Size((), ast.Constant(dim.dim_value))
    if ANONYMOUS.match(dim.dim_param):
        return Size((f"{name}.axis{axis}",), ast.Name("v0"))
    return parse(dim.dim_param)


def _role(name: str, symbol: str, axis: int, dims: Sequence[Size]) -> str:
    lower = symbol.lower()
    if "batch" in lower:
        return "batch"
    if "past" in lower or "cache" in lower:
        return "past"
    if "total" in lower or ("mask" in lower and ("len" in lower or "seq" in lower)):
        return "total"
    if axis == 0:
        return "batch"
    if len(dims) >= 3 and PAST.search(name) and axis == _length_axis(dims):
        return "past"
    if len(dims) == 4 and _is_image(dims) is not None:
        first = _is_image(dims)
        return "height" if axis == first else "width" if first is not None and axis == first + 1 else "other"
    return "other"


def _length_axis(dims: Sequence[Size]) -> int:
    """The axis of the tokens in keys or values that are kept: the last but one, or the last."""
    return len(dims) - 2 if dims[-2].symbols else len(dims) - 1


def _is_image(dims: Sequence[Size]) -> int | None:
    """The axis of the height, in NCHW or NHWC with 1, 3 or 4 channels."""
    channels = {1: 2, 3: 1}
    for axis, height in channels.items():
        if not dims[axis].symbols and dims[axis].value({}) in (1, 3, 4):
            return height
    return None


# Successive tries: what one model refuses (images in multiples of 32, a text line 48 high) another needs.
HEIGHTS = (64, 48, 32, 224, 128, 256, 320, 299, 640, 28)
WIDTHS = (96, 160, 32, 224, 128, 256, 320, 299, 640, 28)
SINGLE_HEIGHTS = (32, 48, 96, 224, 160, 256, 320, 299, 640, 28)
SINGLE_WIDTHS = (64, 96, 48, 224, 192, 256, 320, 299, 640, 28)
DISTINCT = (7, 5, 11, 6, 13, 9, 10, 8, 12)
UNIFORM = (0, 8, 16, 32, 64, 128, 48, 224, 1, 100)
LONGER = {"other": 6, "past": 2}
UNIT = (1, 2, 4, 8, 16, 32, 64, 128, 224, 100)


def check_names(shapes: Shapes, fixed: Mapping[str, int]) -> None:
    """A `--dim` that names no symbol of the model is a mistake of the user."""
    known = {symbol.name for symbol in shapes.symbols}
    for name, value in fixed.items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"--dim {name}={value}: the model has no such dynamic dimension (it has: {listed})"
            )


def several(
    shapes: Shapes, fixed: Mapping[str, int], asked: Mapping[str, int] | None = None
) -> Iterator[dict[str, int]]:
    """Assignments with more than one element a dimension, the likeliest first.

    fixed: sizes that the user gives. asked: those that the graph seems to ask for; it is tried without, too.
    """
    if asked:
        yield from several(shapes, {**asked, **fixed})
    for batch in (2, 1):
        for i in range(len(UNIFORM)):
            for past in (3, 0) if _has(shapes, "past") else (0,):
                others = _others(shapes, UNIFORM[i])
                yield _assign(shapes, fixed, batch, past, others, (HEIGHTS[i], WIDTHS[i]))


def single(
    shapes: Shapes, fixed: Mapping[str, int], asked: Mapping[str, int] | None = None
) -> Iterator[dict[str, int]]:
    """Assignments of size 1 where the model takes it: one item, one token, no past."""
    for i in range(len(UNIT)):
        for known in (fixed, {**asked, **fixed}) if asked else (fixed,):
            for past in (0, 1) if _has(shapes, "past") else (0,):
                others = {s.name: UNIT[i] for s in shapes.symbols}
                yield _assign(shapes, known, 1, past, others, (SINGLE_HEIGHTS[i], SINGLE_WIDTHS[i]))


def _has(shapes: Shapes, role: str) -> bool:
    return any(symbol.role == role for symbol in shapes.symbols)


def _others(shapes: Shapes, uniform: int) -> dict[str, int]:
    """Every other symbol a size of its own, so that no two agree by accident; or all one size."""
    names = [s.name for s in shapes.symbols if s.role == "other"]
    return {name: uniform or DISTINCT[i % len(DISTINCT)] for i, name in enumerate(names)}


def _assign(
    shapes: Shapes,
    fixed: Mapping[str, int],
    batch: int,
    past: int,
    others: Mapping[str, int],
    image: tuple[int, int],
) -> dict[str, int]:
    values: dict[str, int] = {}
    for symbol in shapes.symbols:
        by_role = {"batch": batch, "past": past, "height": image[0], "width": image[1]}
        values[symbol.name] = by_role.get(symbol.role, others.get(symbol.name, 1))
    return _summed(shapes, fixed, {**values, **fixed})


def longer(shapes: Shapes, fixed: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """An assignment with longer sequences and a longer past: what holds for one length only shows."""
    grown = {s.name: sizes[s.name] + LONGER.get(s.role, 0) for s in shapes.symbols}
    return _summed(shapes, fixed, {**grown, **fixed})


def _summed(shapes: Shapes, fixed: Mapping[str, int], values: dict[str, int]) -> dict[str, int]:
    """The values, with the length of past and sequence together where a symbol stands for that."""
    sequence = values.get(shapes.sequence, 1)
    held = next((values[s.name] for s in shapes.symbols if s.role == "past"), 0)
    for symbol in shapes.symbols:
        if symbol.role == "total" and symbol.name not in fixed:
            values[symbol.name] = held + sequence
    return values


def describe(values: Mapping[str, int]) -> str:
    """An assignment on one line: "batch=2 sequence=7"."""
    return " ".join(f"{name}={value}" for name, value in values.items())
