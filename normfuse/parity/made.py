"""Inputs for a site without running the model: random numbers of the shapes that shape inference finds.

For models that are too large to run or need a custom operator, and for sites inside a body, whose values
cannot be recorded. Only float values can be made: a site that also reads a computed shape stays open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import TypeProto

from normfuse.parity.adversarial import Variant
from normfuse.parity.model import FLOATS, Model, Scope
from normfuse.parity.room import check_room
from normfuse.parity.settings import Array, Settings
from normfuse.parity.sites import Site
from normfuse.parity.symbols import read_shapes, several

# A dimension that shape inference does not find: a batch in front, something odd elsewhere.
BATCH, ELSEWHERE = 2, 5


@dataclass(frozen=True, eq=False)
class SiteMaker:
    """Makes inputs for the sites of one model."""

    model: Model
    settings: Settings

    @cached_property
    def _inferred(self) -> Model:
        """The model with the types of its values; weights outside the file are not needed for that."""
        try:
            inferred = onnx.shape_inference.infer_shapes(self.model.proto, data_prop=True)
        except onnx.shape_inference.InferenceError:  # a domain that the model does not import
            return self.model
        return Model(self.model.path, inferred)

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        """One value for each symbol of the model's inputs."""
        return next(several(read_shapes(self.model.inputs), self.settings.dims), {})

    def recordings(self, site: Site) -> list[Variant]:
        """One made input in the place of a recorded one; none of an unknown type, or beyond the memory."""
        scope = self._inferred.scope_of(site.boundary.output)
        rng = np.random.default_rng(self.settings.seed)
        feed: dict[str, Array] = {}
        for name in site.recorded:
            kind = _type_of(scope, name)
            if kind is None or kind.tensor_type.elem_type not in FLOATS:
                return []
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
            shape = self._shape(name, kind)
            try:
                check_room(shape)
                feed[name] = rng.normal(size=shape).astype(dtype)
            except MemoryError:
                return []
        return [("made inputs", feed)]

    def _shape(self, name: str, kind: TypeProto) -> tuple[int, ...]:
        sizes = read_shapes({name: kind}).sizes[name]
        return tuple(
            size.value(self._sizes)
            if all(symbol in self._sizes for symbol in size.symbols)
            else (BATCH if axis == 0 else ELSEWHERE)
            for axis, size in enumerate(sizes)
        )


def _type_of(scope: Scope | None, name: str) -> TypeProto | None:
    while scope is not None:
        kind = scope.types.get(name)
        if kind is not None and kind.tensor_type.HasField("shape"):
            return kind
        scope = scope.outer
    return None
