"""Makes inputs for a model from its graph, without help from the user.

Three sets: ordinary numbers at a larger assignment of the dynamic dimensions; at longer sequences, rows that
are hard to normalize (zero, constant, tiny variance, large offset, large magnitude); shifted numbers at size
1. What
the original itself refuses (an image that must be a multiple of 32) is tried at other sizes.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator

from normfuse.errors import CannotVerifyError, UsageError
from normfuse.parity.demands import demanded
from normfuse.parity.dtypes import HALVES, is_float, roundoff
from normfuse.parity.model import Model
from normfuse.parity.roles import Role, role_of, role_of_float
from normfuse.parity.room import check_room
from normfuse.parity.sessions import Runner, RuntimeRefusalError
from normfuse.parity.settings import Array, Settings
from normfuse.parity.symbols import Shapes, check_names, describe, longer, read_shapes, several, single

# Seconds of one run above which fewer runs are made.
HEAVY = 0.1
# What positive numbers are at least.
LEAST = 0.05


@dataclass(frozen=True, eq=False)
class Trial:
    """One set of inputs, the sizes of its dynamic dimensions, and what the original makes of it.

    seconds: how long that took.
    """

    label: str
    feed: Mapping[str, Array]
    baseline: Mapping[str, Any]
    sizes: Mapping[str, int]
    seconds: float = 0.0

    @property
    def heavy(self) -> bool:
        """Whether a run takes so long that each one must be worth it."""
        return self.seconds > HEAVY


@dataclass(frozen=True, eq=False)
class Maker:
    """Makes values for the inputs of one model; positive: none of the floats is negative or 0."""

    model: Model
    shapes: Shapes
    roles: Mapping[str, Role]
    dtypes: Mapping[str, Any]
    settings: Settings
    positive: bool = False

    @staticmethod
    def of(model: Model, settings: Settings) -> Maker:
        """Read the inputs' types, shapes and roles."""
        dtypes: dict[str, Any] = {}
        for name, kind in model.inputs.items():
            if kind.WhichOneof("value") != "tensor_type":
                what = str(kind.WhichOneof("value")).removesuffix("_type").replace("_", " ")
                raise CannotVerifyError(f"input {name!r} is of type {what}, and only tensors can be fed")
            dtypes[name] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
        shapes = read_shapes(model.inputs)
        check_names(shapes, settings.dims)
        unknown = set(settings.given) - set(dtypes)
        if unknown:
            raise UsageError(
                f"--input {min(unknown)}: the model has no such input (it has: {', '.join(dtypes)})"
            )
        roles = {name: role_of(model, name, d) for name, d in dtypes.items() if d.kind in "iub"}
        named = {name: role_of_float(model, name) for name, d in dtypes.items() if roundoff(d)}
        return Maker(model, shapes, roles | {n: r for n, r in named.items() if r}, dtypes, settings)

    def asked(self) -> dict[str, int]:
        """Sizes of dynamic dimensions that the graph itself asks for."""
        return demanded(self.model, self.shapes)

    def feed(self, sizes: Mapping[str, int], recipe: str) -> dict[str, Array]:
        """Values for all inputs; recipe is "normal", "rows" or "shifted"."""
        return {name: self._value(name, sizes, recipe) for name in self.dtypes}

    def choices(self) -> list[str]:
        """What was chosen for inputs that are no ordinary numbers, for the report."""
        return [f"{name}: {role.reason}" for name, role in self.roles.items()]

    def _value(self, name: str, sizes: Mapping[str, int], recipe: str) -> Array:
        shape, dtype = self.shapes.of(name, sizes), self.dtypes[name]
        check_room(shape)
        # Each input has its own stream, so that one more input does not change the others.
        rng = np.random.default_rng(
            [self.settings.seed, zlib.crc32(name.encode()), zlib.crc32(recipe.encode())]
        )
        if name in self.settings.given:
            return _given(name, self.settings.given[name], shape, dtype, rng)
        if name in self.roles:
            return self._by_role(self.roles[name], shape, dtype, rng, recipe, sizes)
        if dtype.kind in "OUS":
            return np.full(shape, "text", dtype=object)
        made = RECIPES[recipe](shape, rng, dtype in HALVES or bool(self.model.halves))
        return np.asarray((np.abs(made) + LEAST if self.positive else made).astype(dtype))

    def _by_role(
        self,
        role: Role,
        shape: tuple[int, ...],
        dtype: Any,
        rng: Generator,
        recipe: str,
        sizes: Mapping[str, int],
    ) -> Array:
        """Values of an input that is more than a number."""
        if role.kind == "position":
            return np.asarray(self._positions(role, shape, sizes).astype(dtype))
        if role.kind == "positive":
            return np.asarray(rng.uniform(LEAST, 1, shape)).astype(dtype)
        if role.kind == "extent":
            return np.broadcast_to(self._extent(shape, sizes), shape).astype(dtype)
        single: dict[str, Callable[[], int]] = {
            "mask": lambda: 1,
            "ones": lambda: 1,
            "flag": lambda: int(recipe != "shifted"),
            "rate": lambda: 16000,
            "past": lambda: self._held(sizes),
            "total": lambda: self._held(sizes) + sizes.get(self.shapes.sequence, 1),
            "length": lambda: self._measured(role, sizes),
        }
        if role.kind in single:
            return np.full(shape, single[role.kind](), dtype)
        return rng.integers(role.low, max(role.high, role.low + 1), shape).astype(dtype)

    def _held(self, sizes: Mapping[str, int]) -> int:
        """How many tokens the past holds."""
        return next((sizes[s.name] for s in self.shapes.symbols if s.role == "past"), 0)

    def _positions(self, role: Role, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Any:
        """The places of the tokens behind the past, in every row."""
        steps = np.arange(shape[-1] if shape else 1) + self._held(sizes) + role.low
        steps = steps % role.high if role.table else steps
        return np.broadcast_to(steps.reshape(-1) if shape else steps[0], shape).copy()

    def _extent(self, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Any:
        """Height and width of the image among the inputs, or of one that might be."""
        images = (self.shapes.of(n, sizes) for n, role in self.shapes.sizes.items() if len(role) == 4)
        first = next(images, (1, 3, 64, 96))
        pair = first[1:3] if first[3] in (1, 3, 4) else first[2:4]
        return np.array(pair if shape[-1:] == (2,) else pair[0])

    def _measured(self, role: Role, sizes: Mapping[str, int]) -> int:
        """The size of the axis that a length measures; if not known, the second of the first such input."""
        if role.of is not None and role.of[0] in self.shapes.sizes:
            return self.shapes.of(role.of[0], sizes)[role.of[1]]
        for name in self.dtypes:
            shape = self.shapes.of(name, sizes)
            if len(shape) >= 2 and self.roles.get(name, Role("plain")).kind != "length":
                dynamic = [n for n, size in zip(shape, self.shapes.sizes[name], strict=True) if size.symbols]
                return max(dynamic[1:] or shape[1:])
        return 1


def _normal(shape: tuple[int, ...], rng: Generator, half: bool) -> Any:
    return rng.normal(size=shape)


def _shifted(shape: tuple[int, ...], rng: Generator, half: bool) -> Any:
    return rng.normal(size=shape) * 2 + 3


def _rows(shape: tuple[int, ...], rng: Generator, half: bool) -> Any:
    """Rows in turn: ordinary, zero, constant, tiny variance, large offset, large magnitude."""
    values = rng.normal(size=shape)
    if not shape:
        return values
    rows = values.reshape(-1, shape[-1]) if values.size else values
    offset, large = (64.0, 100.0) if half else (1e3, 1e4)
    hard = (lambda r: r, lambda r: r * 0, lambda r: r * 0 + 1.3, lambda r: r * 3e-4, lambda r: r + offset,
            lambda r: r * large)  # fmt: skip
    for i in range(len(rows) if values.size else 0):
        rows[i] = hard[i % len(hard)](rows[i])
    return rows.reshape(shape)


RECIPES: Mapping[str, Callable[[tuple[int, ...], Generator, bool], Any]] = {
    "normal": _normal,
    "rows": _rows,
    "shifted": _shifted,
}


def _given(name: str, text: str, shape: tuple[int, ...], dtype: Any, rng: Generator) -> Array:
    """`--input name=random:LOW:HIGH`, `zeros`, `ones`, or a `.npy` file."""
    if text in ("zeros", "ones"):
        return np.full(shape, text == "ones", dtype)
    if text.startswith("random:"):
        try:
            low, high = (float(part) for part in text.split(":")[1:])
        except ValueError as error:
            raise UsageError(f"--input {name}={text}: expected random:LOW:HIGH") from error
        if not -np.inf < low < high < np.inf or (dtype.kind in "iub" and int(low) >= int(high)):
            raise UsageError(f"--input {name}={text}: LOW must be less than HIGH, and both finite")
        whole = dtype.kind in "iub"
        made = rng.integers(int(low), int(high), shape) if whole else rng.uniform(low, high, shape)
        return np.asarray(made).astype(dtype)
    if text.endswith(".npy"):
        try:
            return np.asarray(np.load(text, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise UsageError(f"--input {name}={text}: cannot be read ({error})") from error
    raise UsageError(f"--input {name}={text}: expected random:LOW:HIGH, zeros, ones or a .npy file")


def trials(model: Model, original: Runner, settings: Settings) -> tuple[list[Trial], list[str]]:
    """The inputs that the original accepts, with its results, and notes on how they were chosen."""
    if settings.inputs:
        return [_user_trial(original, i, dict(feed)) for i, feed in enumerate(settings.inputs)], []
    maker = Maker.of(model, settings)
    asked = maker.asked()
    first = _accepted(maker, original, several(maker.shapes, settings.dims, asked), "normal")
    if isinstance(first, str):
        raise CannotVerifyError(
            f"the model accepts none of the inputs that were made for it, such as {first};"
            " give sizes with --dim NAME=SIZE or inputs with --inputs"
        )
    notes = maker.choices()
    if says_nothing(first.baseline):
        maker, first = _positive(maker, original, first, notes)
    found = [first]
    if first.heavy and not maker.shapes.symbols:
        return found, [*notes, "a run takes long, so only one set of inputs is used; each rewrite sees more"]
    if not first.heavy and len(maker.roles) < len(maker.dtypes):
        kept = {**{k: v for k, v in asked.items() if first.sizes[k] == v}, **settings.dims}
        tries = (longer(maker.shapes, kept, first.sizes), dict(first.sizes))
        hard = _accepted(maker, original, iter(tries), "rows")
        found += [hard] if isinstance(hard, Trial) else []
    tried = (sizes for sizes in single(maker.shapes, settings.dims, asked) if sizes != first.sizes)
    second = _accepted(maker, original, tried, "shifted")
    if isinstance(second, str) or not maker.shapes.symbols:
        if any(symbol.name not in settings.dims for symbol in maker.shapes.symbols):
            notes.append("only one assignment of the dynamic dimensions is accepted by the model")
        second = _accepted(maker, original, iter([dict(first.sizes)]), "shifted")
    if isinstance(second, Trial):
        found.append(second)
    return found, notes


def says_nothing(results: Mapping[str, Any]) -> bool:
    """Whether no output holds a number: everything is NaN or infinite."""
    floats = [np.asarray(v) for v in results.values() if is_float(v) and np.size(v)]
    return bool(floats) and not any(np.isfinite(v.astype(np.float64)).any() for v in floats)


def _positive(maker: Maker, original: Runner, first: Trial, notes: list[str]) -> tuple[Maker, Trial]:
    """The same with positive numbers, where a logarithm or a root makes nothing but NaN of negative ones."""
    other = replace(maker, positive=True)
    again = _accepted(other, original, iter([dict(first.sizes)]), "normal")
    if isinstance(again, str) or says_nothing(again.baseline):
        return maker, first
    notes.append("numbers are positive: of others the model makes NaN only")
    return other, again


def _user_trial(original: Runner, index: int, feed: dict[str, Array]) -> Trial:
    try:
        return Trial(f"given inputs {index + 1}", feed, original.run(feed), {})
    except RuntimeRefusalError as error:
        raise CannotVerifyError(f"the model does not accept the given inputs {index + 1}: {error}") from error


def _accepted(maker: Maker, original: Runner, tries: Iterator[dict[str, int]], recipe: str) -> Trial | str:
    """The first assignment that the original runs at, or the first that it does not, and what it said."""
    said, seen = "", set()
    for sizes in tries:
        key = tuple(sizes.items())
        if key in seen:
            continue
        seen.add(key)
        try:
            feed = maker.feed(sizes, recipe)
            started = time.perf_counter()
            baseline = original.run(feed)
        except RuntimeRefusalError as error:
            at = f" ({describe(sizes)})" if sizes else ""
            said = said or f"{_shapes(feed)}{at}: {error}"
            continue
        except MemoryError as error:
            raise CannotVerifyError(
                f"there is not enough memory for inputs of these sizes: {describe(sizes) or 'those fixed'}",
                hint="give smaller ones with --dim NAME=SIZE",
            ) from error
        seconds = time.perf_counter() - started
        label = ", ".join(part for part in (describe(sizes), recipe, f"seed {maker.settings.seed}") if part)
        return Trial(label, feed, baseline, sizes, seconds)
    return said or "there is no size to try"


def _shapes(feed: Mapping[str, Array]) -> str:
    """The inputs' shapes on one line: "x [2, 7, 64], mask [2, 7]"."""
    return ", ".join(f"{name} {list(np.shape(value))}" for name, value in feed.items())
