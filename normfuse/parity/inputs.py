"""Makes inputs for a model from its graph, without help from the user.

Three sets: ordinary numbers at a larger assignment of the dynamic dimensions; at the same, rows that are hard
to normalize (zero, constant, tiny variance, large offset, large magnitude); shifted numbers at size 1. What
the original itself refuses (an image that must be a multiple of 32) is tried at other sizes.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator

from normfuse.errors import CannotVerifyError, UsageError
from normfuse.parity.dtypes import HALVES
from normfuse.parity.model import Model
from normfuse.parity.roles import Role, role_of
from normfuse.parity.room import check_room
from normfuse.parity.sessions import Runner, RuntimeRefusalError
from normfuse.parity.settings import Array, Settings
from normfuse.parity.symbols import Shapes, check_names, describe, read_shapes, several, single

# Seconds of one run above which fewer runs are made.
HEAVY = 0.5


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
    """Makes values for the inputs of one model."""

    model: Model
    shapes: Shapes
    roles: Mapping[str, Role]
    dtypes: Mapping[str, Any]
    settings: Settings

    @staticmethod
    def of(model: Model, settings: Settings) -> Maker:
        """Read the inputs' types, shapes and roles."""
        dtypes: dict[str, Any] = {}
        for name, kind in model.inputs.items():
            if kind.WhichOneof("value") != "tensor_type":
                raise CannotVerifyError(
                    f"input {name!r} is no tensor, so none can be made; give one with --inputs"
                )
            dtypes[name] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
        shapes = read_shapes(model.inputs)
        check_names(shapes, settings.dims)
        unknown = set(settings.given) - set(dtypes)
        if unknown:
            raise UsageError(
                f"--input {min(unknown)}: the model has no such input (it has: {', '.join(dtypes)})"
            )
        whole = {name: role_of(model, name, d) for name, d in dtypes.items() if d.kind in "iub"}
        return Maker(model, shapes, whole, dtypes, settings)

    def feed(self, sizes: Mapping[str, int], recipe: str) -> dict[str, Array]:
        """Values for all inputs; recipe is "normal", "rows" or "shifted"."""
        return {name: self._value(name, sizes, recipe) for name in self.dtypes}

    def choices(self) -> list[str]:
        """What was chosen for integer and boolean inputs, for the report."""
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
            return self._whole(self.roles[name], shape, dtype, rng, recipe, sizes)
        if "mask" in name.lower():
            return np.ones(shape, dtype)
        if dtype.kind in "OUS":
            return np.full(shape, "text", dtype=object)
        return np.asarray(RECIPES[recipe](shape, rng, dtype in HALVES).astype(dtype))

    def _whole(
        self,
        role: Role,
        shape: tuple[int, ...],
        dtype: Any,
        rng: Generator,
        recipe: str,
        sizes: Mapping[str, int],
    ) -> Array:
        """Integers and booleans by their role."""
        if role.kind == "mask":
            return np.ones(shape, dtype)
        if role.kind == "flag":
            return np.full(shape, recipe != "shifted", dtype)
        if role.kind == "rate":
            return np.full(shape, 16000, dtype)
        if role.kind == "length":
            return np.full(shape, self._measured(sizes), dtype)
        if role.kind == "position":
            held = next((sizes[s.name] for s in self.shapes.symbols if s.role == "past"), 0)
            steps = np.arange(shape[-1] if shape else 1) + held + role.low
            steps = steps % role.high if role.table else steps
            return np.broadcast_to(steps.reshape(-1) if shape else steps[0], shape).astype(dtype).copy()
        return rng.integers(role.low, max(role.high, role.low + 1), shape).astype(dtype)

    def _measured(self, sizes: Mapping[str, int]) -> int:
        """The size of the axis that a length input speaks of: the second of the first input that has one."""
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
    first = _accepted(maker, original, several(maker.shapes, settings.dims), "normal")
    if isinstance(first, str):
        raise CannotVerifyError(
            f"the model accepts none of the inputs that were made for it, such as {first};"
            " give sizes with --dim NAME=SIZE or inputs with --inputs"
        )
    found = [first]
    notes = maker.choices()
    if first.heavy and not maker.shapes.symbols:
        return found, [*notes, "a run takes long, so only one set of inputs is used; each rewrite sees more"]
    if not first.heavy and len(maker.roles) < len(maker.dtypes):
        hard = _accepted(maker, original, iter([dict(first.sizes)]), "rows")
        found += [hard] if isinstance(hard, Trial) else []
    tried = (sizes for sizes in single(maker.shapes, settings.dims) if sizes != first.sizes)
    second = _accepted(maker, original, tried, "shifted")
    if isinstance(second, str) or not maker.shapes.symbols:
        if maker.shapes.symbols:
            notes.append("only one assignment of the dynamic dimensions is accepted by the model")
        second = _accepted(maker, original, iter([dict(first.sizes)]), "shifted")
    if isinstance(second, Trial):
        found.append(second)
    return found, notes


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
