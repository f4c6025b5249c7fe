"""Shape rules that must not guess.

The rules of onnx-shape-inference favour a useful answer over a proven one in a few places. A proof that
rests on them would be wrong, so they are registered again, corrected:

    Add(x[A, 4], y[B, 4])        the library says [A, 4]; it is [?, 4], since A or B may be 1
    Slice(x[N], 0, 100)          the library says [100]; it is [?], since N may be smaller
    Expand(x, unknown target)    the library says nothing; the rank is known, and so are dimensions above 1
    Cast(300, to=uint8)          the library goes on with 300; it is 44
    ReduceProd([H, W])           the library says nothing of what it holds; it is H*W
    Squeeze(x[A, 4, 1])          the library says [A, 4]; it is [4] where A is 1
    Unique(x[A, 4], axis=0)      the library says one dimension
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext, registry

_Rule = Callable[[ShapeInferenceContext, ir.Node], None]
_Dim = int | ir.SymbolicDim

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow")
_HOLD_SIZES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.DOUBLE})
BROADCASTING = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "PRelu", "Where"),
    *("And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    *("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Expand", "MatMul"),
)


@functools.cache
def register() -> None:
    """Put the corrected rules before the library's own; once a process."""
    registry.collect()
    for op_type in BROADCASTING:
        _correct(op_type, _broadcast_again)
    for op_type in _ARITHMETIC:
        _prefer(op_type, _unchanged)
    _correct("Slice", _slice_again)
    _correct("Expand", _expand_again)
    registry.register("", "Cast", since_version=1)(_cast)
    _correct("ReduceProd", _product_too)
    _correct("Squeeze", _squeeze_again)
    _correct("Unique", _unique_again)


def _correct(op_type: str, correction: _Rule) -> None:
    for version in set(registry.version_boundaries("", op_type)):
        rule = registry.get("", op_type, version)
        if rule is not None:
            registry.register("", op_type, since_version=version)(_followed_by(rule, correction))


def _prefer(op_type: str, quick: Callable[[ShapeInferenceContext, ir.Node], bool]) -> None:
    for version in set(registry.version_boundaries("", op_type)):
        rule = registry.get("", op_type, version)
        if rule is not None:
            registry.register("", op_type, since_version=version)(_unless(quick, rule))


def _unless(quick: Callable[[ShapeInferenceContext, ir.Node], bool], rule: _Rule) -> _Rule:
    def either(context: ShapeInferenceContext, node: ir.Node) -> None:
        if not quick(context, node):
            rule(context, node)

    return either


def _unchanged(context: ShapeInferenceContext, node: ir.Node) -> bool:
    """Two operands of floats, one of which has the shape of the result: most of a model, so it is quick.

    The other broadcasts into it, dimension by dimension the same or 1. Anything else is left to the rules.
    """
    if len(node.inputs) != 2 or len(node.outputs) != 1:
        return False
    a, b = node.inputs
    if a is None or b is None or a.shape is None or b.shape is None or a.dtype not in _FLOATS:
        return False
    left, right = a.shape.dims, b.shape.dims
    larger, dims, others = (a, left, right) if len(left) >= len(right) else (b, right, left)
    if not _absorbs(dims, others):
        if len(left) != len(right) or not _absorbs(right, left):
            return False
        larger = b
    out = node.outputs[0]
    if out.shape is not None or larger.shape is None or context.get_symbolic_value(a) is not None:
        return False
    out.shape = larger.shape
    context.set_dtype(out, a.dtype)
    return True


def _absorbs(dims: Sequence[_Dim], others: Sequence[_Dim]) -> bool:
    """Whether operands of these shapes, the first no shorter, have a result of the first."""
    for dim, other in zip(reversed(dims), reversed(others), strict=False):
        if other is dim or other == 1:
            continue
        if isinstance(dim, int) or isinstance(other, int):
            if dim != other:
                return False
        elif dim.value is None or dim.value != other.value:
            return False
    return True


def _followed_by(rule: _Rule, correction: _Rule) -> _Rule:
    def both(context: ShapeInferenceContext, node: ir.Node) -> None:
        rule(context, node)
        correction(context, node)

    return both


def _broadcast_again(context: ShapeInferenceContext, node: ir.Node) -> None:
    """A dimension where two different symbols meet is neither of them."""
    out = node.outputs[0]
    shapes = [_target(context, node, k, v) for k, v in enumerate(node.inputs)]
    if out.shape is None or any(s is None for s in shapes):
        return
    dims: list[_Dim] = list(out.shape)
    last = 2 if node.op_type == "MatMul" else 0  # the last two dimensions of a product do not broadcast
    for offset in range(last + 1, len(dims) + 1):
        meeting = [s[-offset] for s in shapes if s is not None and len(s) >= offset and s[-offset] != 1]
        if len({str(d) for d in meeting}) > 1 and not any(isinstance(d, int) for d in meeting):
            dims[-offset] = context.new_symbolic_dim()
    out.shape = ir.Shape(dims)


def _target(
    context: ShapeInferenceContext, node: ir.Node, k: int, value: ir.Value | None
) -> Sequence[_Dim] | None:
    """The dimensions that an operand brings: its shape, or what the second operand of Expand holds."""
    if value is None:
        return ()
    if node.op_type == "Expand" and k == 1:
        constant = ir.convenience.get_const_tensor(value)
        if constant is not None:
            return [int(n) for n in constant.numpy().reshape(-1)]
        known: Sequence[_Dim] | None = context.get_symbolic_value(value)
        return known
    return None if value.shape is None else tuple(value.shape)


def _slice_again(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The length of a slice of a dimension of unknown length is not known from its bounds."""
    data, out = node.inputs[0], node.outputs[0]
    if data is None or data.shape is None or out.shape is None:
        return
    out.shape = ir.Shape([
        context.new_symbolic_dim() if isinstance(after, int) and not isinstance(before, int) else after
        for before, after in zip(data.shape, out.shape, strict=True)
    ])  # fmt: skip


def _cast(context: ShapeInferenceContext, node: ir.Node) -> None:
    """What an integer tensor holds is only known through a type that holds every size."""
    data, out = node.inputs[0], node.outputs[0]
    if data is None:
        return
    target = node.attributes.get_int("to", 0)
    context.set_shape_and_dtype(out, data.shape, ir.DataType(target))
    known = context.get_symbolic_value(data)
    if known is not None and target in _HOLD_SIZES:
        context.set_symbolic_value(out, known)


def _product_too(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The product of all of a list of sizes: the number of elements that a sum is divided by."""
    data, out = node.inputs[0], node.outputs[0]
    if data is None or data.shape is None or len(data.shape) != 1 or out.shape is None:
        return
    known = context.get_symbolic_value(data)
    if known is None or data.shape[0] == 0 or not _reduces_everything(node):
        return
    product = known[0]
    for size in known[1:]:
        product = product * size
    context.set_symbolic_value(out, [product])


def _reduces_everything(node: ir.Node) -> bool:
    """Whether a reduction of a vector leaves one number."""
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return not node.attributes.get_int("noop_with_empty_axes", 0) or "axes" in node.attributes
    axes = ir.convenience.get_const_tensor(node.inputs[1])
    return axes is not None and axes.size > 0


def _squeeze_again(_: ShapeInferenceContext, node: ir.Node) -> None:
    """Without axes, a dimension of unknown length may go or stay."""
    data = node.inputs[0]
    has_axes = "axes" in node.attributes or (len(node.inputs) > 1 and node.inputs[1] is not None)
    if not has_axes and data is not None and data.shape is not None and not data.shape.is_static():
        node.outputs[0].shape = None


def _unique_again(_: ShapeInferenceContext, node: ir.Node) -> None:
    if "axis" in node.attributes:
        node.outputs[0].shape = None


def _expand_again(context: ShapeInferenceContext, node: ir.Node) -> None:
    """An Expand to an unknown target: each dimension above 1 stays, every other may be anything."""
    data, target = node.inputs
    out = node.outputs[0]
    if out.shape is not None or data is None or target is None or data.shape is None or target.shape is None:
        return
    length = target.shape[0] if len(target.shape) == 1 else None
    if not isinstance(length, int):
        return
    rank = max(length, data.shape.rank())
    padded: list[_Dim] = [*[1] * (rank - data.shape.rank()), *data.shape.dims]
    context.set_shape_and_dtype(
        out,
        ir.Shape([
            dim if (isinstance(dim, int) and dim != 1) or rank - k > length else context.new_symbolic_dim()
            for k, dim in enumerate(padded)
        ]),
        data.dtype,
    )  # fmt: skip
