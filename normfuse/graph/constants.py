"""Which values are known before the model runs, and what they are.

Constant: an initializer that no caller can override, every form of Constant node, and short chains of
cheap operators over such values (a Cast of a scale, Unsqueeze of a bias, `1 + w`). The chains are evaluated
by ONNX's reference operators in the data types that the model states, so a folded constant is rounded
exactly where the model rounds it.

An initializer that is also a graph input may be overridden by the caller from IR version 4 on and is then
no constant; up to IR version 3 every initializer has to be listed as an input, and is one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from normfuse.graph.modest import is_modest
from normfuse.graph.shapes import Shapes

_ARITHMETIC = ("Abs", "Add", "Div", "Equal", "Exp", "Mul", "Neg", "Pow", "Reciprocal", "Sqrt", "Sub", "Where")
_COPIES = ("Cast", "CastLike", "Identity", "Concat", "ConstantOfShape", "Expand", "Gather", "Range", "Tile")
_VIEWS = ("Flatten", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
FOLDABLE = frozenset((*_ARITHMETIC, *_COPIES, *_VIEWS, "ReduceProd", "Shape"))
MAX_ELEMENTS = 1 << 22
MAX_CHAIN = 12


class Constants:
    """Constants of one model, evaluated when asked for and remembered.

    Only what is asked for is read from disk; nothing above `MAX_ELEMENTS` elements is folded through a chain.
    """

    def __init__(self, model: ir.Model, shapes: Shapes) -> None:
        self._shapes = shapes
        self._overridable_inputs = model.ir_version >= 4 if model.ir_version is not None else True
        self._any_overridable = self._overridable_inputs and any(
            value.is_graph_input() for value in model.graph.initializers.values()
        )
        self._opset = model.opset_imports.get("", 1)
        self._known: dict[ir.Value, np.ndarray[Any, Any] | None] = {}
        self._overridden: dict[ir.Value, bool] = {}

    def is_overridable(self, value: ir.Value) -> bool:
        """Whether a caller may replace this initializer when running the model."""
        return self._overridable_inputs and value.is_initializer() and value.is_graph_input()

    def depends_on_overridable(self, value: ir.Value | None, depth: int = 0) -> bool:
        """Whether `value` would be constant but for an initializer that a caller may override."""
        if value is None or depth > MAX_CHAIN or not self._any_overridable:
            return False
        if value not in self._overridden:
            self._overridden[value] = self._reads_overridable(value, depth)
        return self._overridden[value]

    def _reads_overridable(self, value: ir.Value, depth: int) -> bool:
        if self.is_overridable(value):
            return True
        node = value.producer()
        if node is None or node.op_type not in FOLDABLE:
            return False
        return any(self.depends_on_overridable(v, depth + 1) for v in node.inputs) and all(
            v is None or self.is_known(v) or self.depends_on_overridable(v, depth + 1) for v in node.inputs
        )

    def is_known(self, value: ir.Value | None) -> bool:
        """Whether `get` would return an array; large tensors are not read to find out."""
        if value is None:
            return False
        if self._tensor(value) is not None:
            return True
        return self.get(value) is not None

    def get(self, value: ir.Value | None, depth: int = 0) -> np.ndarray[Any, Any] | None:
        """The array that `value` always holds, in the model's own data type, or None."""
        if value is None:
            return None
        if value in self._known:
            return self._known[value]
        tensor = self._tensor(value)
        array = tensor.numpy() if tensor is not None else self._computed(value, depth)
        self._known[value] = array
        return array

    def forget(self, value: ir.Value) -> None:
        """Drop what is remembered of `value`, so that large weights do not stay in memory."""
        self._known.pop(value, None)

    def scalar(self, value: ir.Value | None) -> float | None:
        """The number that `value` always holds when all its elements are the same, else None."""
        array = self.get(value)
        if array is None or array.size == 0 or array.dtype.kind in "OSUb":
            return None
        flat = array.reshape(-1)
        return float(flat[0]) if array.size == 1 or bool((flat == flat[0]).all()) else None

    def _tensor(self, value: ir.Value) -> ir.TensorProtocol | None:
        if value.is_initializer():
            tensor = None if self.is_overridable(value) else value.const_value
        else:
            node = value.producer()
            is_constant = node is not None and node.op_type == "Constant" and _is_plain(node)
            tensor = ir.convenience.get_const_tensor(value) if is_constant else None
        return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor

    def _computed(self, value: ir.Value, depth: int) -> np.ndarray[Any, Any] | None:
        """A value of shape arithmetic that turned out to be static, or of a chain over constants."""
        known = self._shapes.integers(value)
        shape, dtype = (None, None) if known is None else (self._shapes.of(value), self._shapes.dtype(value))
        if known is not None and shape is not None and dtype in (ir.DataType.INT64, ir.DataType.INT32):
            static = [n for n in (*known, *shape) if isinstance(n, int)]
            if len(static) == len(known) + len(shape) and math.prod(static[len(known) :]) == len(known):
                return np.array(known, dtype=dtype.numpy()).reshape([int(n) for n in shape])
        return self._fold(value, depth)

    def _fold(self, value: ir.Value, depth: int) -> np.ndarray[Any, Any] | None:
        node = value.producer()
        if node is None or depth > MAX_CHAIN or node.domain != "":
            return None
        if node.op_type not in FOLDABLE or len(node.outputs) != 1:
            return None
        arrays = []
        for index, operand in enumerate(node.inputs):
            if operand is not None and index == 1 and node.op_type == "CastLike":
                array = self._sample(operand)
            else:
                array = None if operand is None else self.get(operand, depth + 1)
            if operand is not None and (array is None or array.size > MAX_ELEMENTS):
                return None
            arrays.append(array)
        return evaluate(node, arrays, self._opset)

    def _sample(self, value: ir.Value) -> np.ndarray[Any, Any] | None:
        """Any tensor of the type of `value`: all that CastLike asks of its second operand."""
        dtype = self._shapes.dtype(value)
        return None if dtype is None else np.zeros((), dtype.numpy())


def _is_plain(constant: ir.Node) -> bool:
    """Whether a Constant node is ONNX's own, with one dense value."""
    return (
        constant.domain == ""
        and len(constant.attributes) == 1
        and len(constant.outputs) == 1
        and "sparse_value" not in constant.attributes
    )


def evaluate(
    node: ir.Node, arrays: list[np.ndarray[Any, Any] | None], opset: int, most: int = MAX_ELEMENTS
) -> np.ndarray[Any, Any] | None:
    """What `node` computes from constant inputs, by ONNX's reference operators.

    arrays: one for each input, None where the input is absent.
    Returns None when the operator refuses the inputs, its result would have more than `most` elements, or it
    would take too long.
    """
    from onnx.reference import ReferenceEvaluator

    if not is_modest(node, arrays, most):
        return None
    names = ["" if array is None else f"i{k}" for k, array in enumerate(arrays)]
    proto = onnx.helper.make_node(node.op_type, names, ["o"])
    proto.attribute.extend(ir.serde.serialize_attribute(a) for a in node.attributes.values())
    feeds = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    graph = onnx.helper.make_graph(
        [proto],
        "constant",
        [onnx.helper.make_tensor_value_info(n, _element_type(a), list(a.shape)) for n, a in feeds.items()],
        [onnx.ValueInfoProto(name="o")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            result = ReferenceEvaluator(model).run(None, feeds)[0]  # type: ignore[index]
    except (ValueError, TypeError, IndexError, RuntimeError, AttributeError, KeyError, ZeroDivisionError):
        return None  # the reference operators raise all of these for inputs that are not legal
    return np.asarray(result)


def _element_type(array: np.ndarray[Any, Any]) -> int:
    return int(ir.DataType.from_numpy(array.dtype))
