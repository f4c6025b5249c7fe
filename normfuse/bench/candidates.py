"""The candidates of a site, cut out of models that say it in different ways.

    variants    the rewritten model, once for each place in the candidates' order
    Spot        one site: where it begins and ends, and a piece of each variant
    protos      these pieces as small models, at the shapes that the site has in a run of the original

A residual add is measured together with the norm behind it, since the runtime may fuse the two; if its sum is
also used elsewhere, it is an output of the small model, as it would have to be kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from normfuse.parity.extract import Piece
from normfuse.parity.model import Model, Scope, names_read
from normfuse.parity.settings import Array, Boundary
from normfuse.parity.sites import Site, cut
from normfuse.targets.residual import NORMS

RESIDUAL = "Residual"


@dataclass(frozen=True, eq=False)
class Variant:
    """A rewritten model, and where each rewrite begins and ends, by the name of its output."""

    model: Model
    boundaries: Mapping[str, Boundary]


@dataclass(frozen=True, eq=False)
class Spot:
    """One site with its candidates; cuts: a pair of pieces for each, or why it cannot be cut out."""

    name: str
    lowerings: tuple[str, ...]
    cuts: tuple[Site | str, ...]
    also: str | None = None

    @property
    def usable(self) -> list[Site]:
        """The candidates that could be cut out."""
        return [site for site in self.cuts if isinstance(site, Site)]

    @property
    def widest(self) -> Site:
        """A site that reads all that any candidate reads, to be recorded from the original's run."""
        first = self.usable[0]
        beside = dict.fromkeys(name for site in self.usable for name in site.after.beside)
        return replace(first, after=replace(first.after, beside=tuple(beside)))


def spot(original: Model, variants: Sequence[Variant], name: str, lowerings: tuple[str, ...]) -> Spot | str:
    """Cut the candidates of a site out of the variants that take them; or why there is nothing to cut.

    variants: at place k each site is said in its k-th way, or in its last.
    """
    boundary = next((v.boundaries[name] for v in variants if name in v.boundaries), None)
    boundary = boundary or _residual(original, name)
    if boundary is None:
        return "no candidate rewrites it"
    also = None
    if boundary.kind == RESIDUAL:
        wider = next((w for v in variants if (w := _with_norm(v.model, boundary)) is not None), None)
        if wider is None:
            return "no norm reads it"
        boundary, also = wider
    used = [variants[min(k, len(variants) - 1)] for k in range(len(lowerings))]
    cuts = tuple(_cut(original, variant, boundary) for variant in used)
    if isinstance(cuts[0], str):
        return cuts[0]
    return Spot(name, lowerings, cuts, also)


def _residual(original: Model, name: str) -> Boundary | None:
    """The residual add that computes a value, where no variant has it any more as a rewrite of its own."""
    scope = original.scope_of(name)
    node = scope.graph.node[scope.position[name]] if scope is not None else None
    if node is None or node.op_type not in ("Add", "Sum"):
        return None
    reads = tuple(dict.fromkeys(node.input))
    return Boundary(RESIDUAL, reads[0], name, inputs=reads)


def _cut(original: Model, variant: Variant, boundary: Boundary) -> Site | str:
    found = cut(original, variant.model, boundary)
    if not isinstance(found, Site):
        return found.detail
    return "it stands in the body of an If, Loop or Scan" if found.before.nested else found


def _with_norm(model: Model, boundary: Boundary) -> tuple[Boundary, str | None] | None:
    """A residual up to the output of the norm that reads it; and its sum, where others read that too."""
    scope = model.scope_of(boundary.output)
    readers = _readers(scope, boundary.output) if scope is not None else []
    norm = next((node for node in readers if node.op_type in NORMS), None)
    if norm is None:
        return None
    used_elsewhere = len(readers) > 1 or boundary.output in model.outputs
    return replace(boundary, output=norm.output[0]), boundary.output if used_elsewhere else None


def _readers(scope: Scope, name: str) -> list[onnx.NodeProto]:
    return [node for node in scope.graph.node if name in names_read(node)]


def proto(piece: Piece, feed: Mapping[str, Array], also: str | None) -> onnx.ModelProto:
    """A candidate as a model of its own, with the shapes of `feed`, as shape inference would have them."""
    model = piece.proto(feed)
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, np.shape(feed[value.name]), strict=True):
            dim.dim_value = size
    if also is not None and any(also in node.output for node in model.graph.node):
        model.graph.output.append(onnx.ValueInfoProto(name=also))
    return model
