"""Inputs for a site without running the model: random numbers of the shapes that shape inference finds.

For models that are too large to run or need a custom operator, and for sites inside a body, whose values
cannot be recorded. Only float values can be made: a site that also reads a computed shape stays open.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto

from normfuse.parity.adversarial import Variant
from normfuse.parity.light import LightModel
from normfuse.parity.model import FLOATS, Model, Scope
from normfuse.parity.settings import Settings
from normfuse.parity.sites import MADE, Site
from normfuse.parity.symbols import read_shapes, several

# A dimension that shape inference does not find: a batch in front, something odd elsewhere.
BATCH, ELSEWHERE = 2, 5
# Inputs of more elements are cut short, to so many along an axis.
MOST_ELEMENTS, FEW = 1 << 24, 8


@dataclass(frozen=True, eq=False)
class SiteMaker:
    """Makes inputs for the sites of one model."""

    model: Model
    settings: Settings

    @cached_property
    def _inferred(self) -> Model:
        """The model with the types of its values; weights outside the file are not needed for that."""
        try:
            inferred = onnx.shape_inference.infer_shapes(LightModel.outline(self.model.proto), data_prop=True)
        except onnx.shape_inference.InferenceError:  # a domain that the model does not import
            return self.model
        return Model(self.model.path, inferred)

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        """One value for each symbol of the model's inputs."""
        return next(several(read_shapes(self.model.inputs), self.settings.dims), {})

    def candidates(self, site: Site) -> Iterator[Variant]:
        """Made inputs in the place of a recorded one, the likeliest first; none where a type is unknown.

        Large ones are cut short: along the spatial axes, or along all but the last.
        """
        scope = self._inferred.scope_of(site.boundary.output)
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {}
        for name in site.recorded:
            kind = _type_of(scope, name)
            if kind is None or kind.tensor_type.elem_type not in FLOATS:
                return
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
            shapes[name] = self._shape(name, kind), dtype
        elements = sum(math.prod(shape) for shape, _ in shapes.values())
        for cut in (_whole,) if elements <= MOST_ELEMENTS else (_corner, _rows):
            rng = np.random.default_rng(self.settings.seed)
            yield (
                MADE,
                {n: rng.normal(size=cut(shape)).astype(dtype) for n, (shape, dtype) in shapes.items()},
            )

    def _shape(self, name: str, kind: TypeProto) -> tuple[int, ...]:
        sizes = read_shapes({name: kind}).sizes[name]
        return tuple(
            size.value(self._sizes)
            if all(symbol in self._sizes for symbol in size.symbols)
            else (BATCH if axis == 0 else ELSEWHERE)
            for axis, size in enumerate(sizes)
        )


def _whole(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


def _corner(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*(min(size, BATCH) for size in shape[:1]), *shape[1:2], *(min(size, FEW) for size in shape[2:]))


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*(min(size, FEW) for size in shape[:-1]), *shape[-1:])


def _type_of(scope: Scope | None, name: str) -> TypeProto | None:
    while scope is not None:
        kind = scope.types.get(name)
        if kind is not None and kind.tensor_type.HasField("shape"):
            return kind
        scope = scope.outer
    return None
