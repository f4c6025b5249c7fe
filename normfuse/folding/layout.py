"""Operators that move channels about or pool within them, and how an affine passes through.

    backward    affine(f(x)) = f(affine'(x))     from the output of f to its inputs
    forward     f(affine(x)) = affine'(f(x))     from an input of f to its outputs

The channel is never assumed to stand anywhere: the arrays of the affine are moved as the elements are, and
an operator that mixes elements (a pool, a mean) asks that the affine does not vary along what it mixes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from normfuse.folding.affine import Affine, Array, regroup
from normfuse.folding.stop import Stop
from normfuse.graph.facts import Facts

Moved = list[tuple[ir.Value, Affine]]


def is_layout(node: ir.Node) -> bool:
    """Whether an affine may pass through `node` at all."""
    return node.op_type in _TABLE and node.domain == ""


def backward(facts: Facts, node: ir.Node, output: ir.Value, affine: Affine) -> Moved | Stop:
    """What to apply to the inputs of `node`, so that `output` comes out with `affine` applied."""
    return _TABLE[node.op_type](facts, node, output, affine, True)


def forward(facts: Facts, node: ir.Node, given: ir.Value, affine: Affine) -> Moved | Stop:
    """What has to be applied to the outputs of `node`, once its input `given` loses `affine`."""
    if node.op_type != "Concat" and node.inputs[0] is not given:
        return Stop("no-linear-neighbour", f"{given.name!r} is no data of {node.op_type}")
    return _TABLE[node.op_type](facts, node, given, affine, False)


def average_keeps_constants(node: ir.Node) -> bool:
    """Whether a constant image comes out of this AveragePool unchanged, at the borders as well.

    Padding that is counted pulls the border towards 0; whether a window that ceil_mode lets stand out
    counts the part outside has changed between versions of the operator.
    """
    if _sees_only_padding(node):
        return False
    if not node.attributes.get_int("count_include_pad", 0):
        return True
    return not is_padded(node) and not node.attributes.get_int("ceil_mode", 0)


def is_padded(node: ir.Node) -> bool:
    """Whether a Conv or a pool reads beyond the border of its input."""
    if node.attributes.get_string("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        return True
    return any(node.attributes.get_ints("pads", ()))


def _sees_only_padding(node: ir.Node) -> bool:
    """Whether a window of this pool may hold padding alone: dilated, it can reach over the whole image."""
    return is_padded(node) and any(step != 1 for step in node.attributes.get_ints("dilations", ()))


def _ends(node: ir.Node, back: bool) -> tuple[ir.Value | None, ir.Value]:
    """Where the affine is, and where it goes, of an operator with one data input and one output."""
    return (node.outputs[0], node.inputs[0]) if back else (node.inputs[0], node.outputs[0])  # type: ignore[return-value]


def _reshape(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    here, there = _ends(node, back)
    source, target = facts.shapes.of(here), facts.shapes.of(there)
    if source is None or target is None:
        return _unknown(node)
    moved = affine.each(lambda array: regroup(array, source, target))
    if moved is None:
        return Stop("channel-axis", f"the channels cannot be followed through {_name(node)}", reached=True)
    return [(there, moved)]


def _transpose(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    _, there = _ends(node, back)
    permutation = permutation_of(node, affine.rank)
    if back:
        permutation = tuple(int(k) for k in np.argsort(permutation))
    moved = affine.each(lambda array: array.transpose(permutation))
    return _unknown(node) if moved is None else [(there, moved)]


def permutation_of(node: ir.Node, rank: int) -> tuple[int, ...]:
    """The perm of a Transpose; it reverses the axes when there is none."""
    return tuple(node.attributes.get_ints("perm", ())) or tuple(range(rank - 1, -1, -1))


def _average_pool(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    if affine.moves and not average_keeps_constants(node):
        return Stop("padding-not-invariant", f"{_name(node)} counts its padding", reached=True)
    return _spatial(facts, node, at, affine, back)


def _max_pool(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    if bool((affine.scale < 0).any()):
        channel = int(np.argmax(affine.scale.reshape(-1) < 0))
        return Stop("activation-between", f"{_name(node)}, and the scale of channel {channel} is negative")
    if any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
        return Stop("activation-between", f"the indices of {_name(node)} are used")
    if _sees_only_padding(node):
        return Stop("padding-not-invariant", f"{_name(node)} may see padding alone", reached=True)
    return _spatial(facts, node, at, affine, back)


def _pad(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    if node.attributes.get_string("mode", "constant") == "constant":
        value = node.attributes.get_float("value", 0.0)
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            known = facts.constants.scalar(node.inputs[2])
            value = float("nan") if known is None else known
        if affine.moves or value != 0.0:
            return Stop("padding-not-invariant", f"{_name(node)} pads with a constant", reached=True)
    if not affine.varies().isdisjoint(_padded_axes(facts, node, affine.rank)):
        return Stop("not-per-channel", f"{_name(node)} may move the channels", reached=True)
    return _spatial(facts, node, at, affine, back)


def _padded_axes(facts: Facts, node: ir.Node, rank: int) -> frozenset[int]:
    """The axes that a Pad changes, all where that is not known.

    One that crops as much as it adds keeps the size of an axis and moves what stands along it.
    """
    everywhere = frozenset(range(rank))
    pads: Sequence[int] | None = node.attributes.get_ints("pads", None)
    axes: Sequence[int] | None = range(rank)
    if pads is None and len(node.inputs) > 1:
        pads = facts.static_integers(node.inputs[1])
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = facts.static_integers(node.inputs[3])
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return everywhere
    return frozenset(axis % rank for k, axis in enumerate(axes) if pads[k] or pads[k + len(axes)])


def _resize(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    crops = node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    if crops or node.attributes.get_string("mode", "nearest") != "nearest":
        return Stop("activation-between", f"{_name(node)} interpolates")
    if not affine.varies().isdisjoint(_scaled_axes(facts, node, affine.rank)):
        return Stop("not-per-channel", f"{_name(node)} may move the channels", reached=True)
    return _spatial(facts, node, at, affine, back)


def _scaled_axes(facts: Facts, node: ir.Node, rank: int) -> frozenset[int]:
    """The axes that a Resize changes, all where that is not known.

    At 1.1 times the size 6 channels stay 6, and are others.
    """
    index = 1 if facts.opset < 11 else 2
    operand = node.inputs[index] if len(node.inputs) > index else None
    scales: Sequence[float] | None = node.attributes.get_floats("scales", None)
    if operand is not None and facts.shapes.of(operand) != (0,):
        array = facts.constants.get(operand)
        scales = None if array is None else [float(scale) for scale in array.reshape(-1)]
    elif scales is None:
        return _resized_axes(facts, node, rank)
    axes = node.attributes.get_ints("axes", range(rank))
    if scales is None or len(scales) != len(axes):
        return frozenset(range(rank))
    return frozenset(axis % rank for axis, scale in zip(axes, scales, strict=True) if scale != 1.0)


def _resized_axes(facts: Facts, node: ir.Node, rank: int) -> frozenset[int]:
    """The axes that have another size behind a node, or may have."""
    source, target = facts.shapes.of(node.inputs[0]), facts.shapes.of(node.outputs[0])
    if source is None or target is None or len(source) != len(target):
        return frozenset(range(rank))
    return frozenset(axis for axis in range(rank) if source[axis] != target[axis])


def _shuffle(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    """DepthToSpace and SpaceToDepth: what is a block of pixels on one side is channels on the other."""
    _, there = _ends(node, back)
    block = node.attributes.get_int("blocksize", 1) ** 2
    if affine.varies() - {1}:
        return Stop("not-per-channel", f"the affine varies along what {_name(node)} moves", reached=True)
    # SpaceToDepth puts the blocks before the channels, as DepthToSpace does in its mode DCR
    last = node.op_type == "DepthToSpace" and node.attributes.get_string("mode", "DCR") == "CRD"
    deep_to_wide = (node.op_type == "DepthToSpace") != back

    def moved(array: Array) -> Array | None:
        flat = array.reshape(-1)
        if flat.size == 1:
            return array
        if not deep_to_wide:
            return (np.repeat(flat, block) if last else np.tile(flat, block)).reshape(1, -1, 1, 1)
        parts = flat.reshape(-1, block).T if last else flat.reshape(block, -1)
        return parts[0].reshape(1, -1, 1, 1) if bool((parts == parts[0]).all()) else None

    result = affine.each(moved)
    if result is None:
        return Stop("not-per-channel", f"{_name(node)} makes pixels of channels that differ", reached=True)
    return [(there, result)]


def _spatial(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    """Operators that work on axes 2 and up and leave batch and channel where they are."""
    _, there = _ends(node, back)
    if any(axis >= 2 for axis in affine.varies()):
        return Stop("not-per-channel", f"the affine varies along what {_name(node)} mixes", reached=True)
    return [(there, affine)]


def _reduce_mean(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    _, there = _ends(node, back)
    rank = facts.shapes.rank(node.inputs[0])
    axes = _axes(facts, node, rank)
    if axes is None:
        return _unknown(node)
    if node.attributes.get_int("keepdims", 1):
        if affine.varies() & set(axes):
            return Stop("not-per-channel", f"the affine varies along what {_name(node)} averages")
        return [(there, affine)]
    if back:
        moved = affine.each(lambda array: np.expand_dims(array, axes))
    elif affine.varies() & set(axes):
        return Stop("not-per-channel", f"the affine varies along what {_name(node)} averages")
    else:
        moved = affine.each(lambda array: np.squeeze(array, axes))
    return _unknown(node) if moved is None else [(there, moved)]


def _axes(facts: Facts, node: ir.Node, rank: int | None) -> tuple[int, ...] | None:
    """The reduced axes, from 0; None where they are not known or where there are none."""
    axes: Sequence[int] | None = node.attributes.get_ints("axes", None)
    if axes is None and len(node.inputs) > 1:
        axes = facts.static_integers(node.inputs[1])
    return None if not axes or rank is None else tuple(sorted({a % rank for a in axes}))


def _concat(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    axis = node.attributes.get_int("axis", 1) % max(affine.rank, 1)
    parts = [v for v in node.inputs if v is not None]
    if back and axis not in affine.varies():
        return [(part, affine) for part in parts]
    sizes = _sizes(facts, parts, axis)
    if sizes is None:
        return _unknown(node)
    if back:
        return _sliced(parts, sizes, affine, axis)
    if parts.count(at) != 1:
        return Stop("no-linear-neighbour", f"{at.name!r} enters {_name(node)} twice")
    return [(node.outputs[0], _embedded(affine, axis, sizes, parts.index(at)))]


def _split(facts: Facts, node: ir.Node, at: ir.Value, affine: Affine, back: bool) -> Moved | Stop:
    axis = node.attributes.get_int("axis", 0) % max(affine.rank, 1)
    parts = list(node.outputs)
    if not back and axis not in affine.varies():
        return [(part, affine) for part in parts]
    sizes = _sizes(facts, parts, axis)
    if sizes is None:
        return _unknown(node)
    if not back:
        return _sliced(parts, sizes, affine, axis)
    assert node.inputs[0] is not None
    return [(node.inputs[0], _embedded(affine, axis, sizes, parts.index(at)))]


def _sizes(facts: Facts, parts: Sequence[ir.Value], axis: int) -> list[int] | None:
    sizes: list[int] = []
    for part in parts:
        dims = facts.shapes.of(part)
        size = None if dims is None else dims[axis]
        if not isinstance(size, int):
            return None
        sizes.append(size)
    return sizes


def _sliced(parts: Sequence[ir.Value], sizes: Sequence[int], affine: Affine, axis: int) -> Moved:
    """Each part's own share of the affine of the whole."""
    shares: Moved = []
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        share = slice(start, start + size)
        shares.append(
            (part, Affine(_cut(affine.scale, axis, share), _cut(affine.shift, axis, share)).normal())
        )
        start += size
    return shares


def _cut(array: Array, axis: int, share: slice) -> Array:
    if array.shape[axis] == 1:
        return array
    return array[tuple(share if k == axis else slice(None) for k in range(array.ndim))]


def _embedded(affine: Affine, axis: int, sizes: Sequence[int], part: int) -> Affine:
    """The affine of the whole that changes one part alone."""

    def embed(array: Array, neutral: float) -> Array:
        shape = list(array.shape)
        shape[axis] = sum(sizes)
        whole = np.full(shape, neutral)
        start = sum(sizes[:part])
        index = [slice(None)] * array.ndim
        index[axis] = slice(start, start + sizes[part])
        whole[tuple(index)] = array
        return whole

    return Affine(embed(affine.scale, 1.0), embed(affine.shift, 0.0)).normal()


def _unknown(node: ir.Node) -> Stop:
    return Stop("unknown-shape", f"the shapes around {_name(node)} are not known")


def _name(node: ir.Node) -> str:
    return f"{node.op_type} {node.name!r}"


_TABLE: dict[str, Callable[[Facts, ir.Node, ir.Value, Affine, bool], Moved | Stop]] = {
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": _transpose,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _spatial,
    "MaxPool": _max_pool,
    "GlobalMaxPool": _max_pool,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
    "ReduceMean": _reduce_mean,
    "DepthToSpace": _shuffle,
    "SpaceToDepth": _shuffle,
    "Concat": _concat,
    "Split": _split,
}
