"""What the shape of a node's results follows from: for operators of which that is all that a rule looks at.

    operator, attributes          ReduceMean, axes=[-1]
    known of each input           shape, type, and the elements of small integer tensors

No rule of these operators reads the elements of a floating-point tensor, as those of Range and Resize do, and
none draws on chance, state or the bodies of control flow.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import onnx_ir as ir

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
_MOST_ELEMENTS = 64
_PLAIN = frozenset({
    *(ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING),
    *(ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS),
})  # fmt: skip

_ELEMENTWISE = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu"),
    *("Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log"),
    *("Mish", "Neg", "Not", "PRelu", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh"),
    *("Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
    *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min"),
    *("Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor"),
    *("Cast", "CastLike", "DequantizeLinear", "Dropout", "Identity", "QuantizeLinear"),
)
_ALONG_AXES = (
    *("ArgMax", "ArgMin", "CumSum", "Hardmax", "LogSoftmax", "LpNormalization", "Softmax"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceProd", "ReduceSum", "ReduceSumSquare"),
    *("BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LRN"),
    *("MeanVarianceNormalization", "RMSNormalization"),
)
_LAYOUT = (
    *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Pad"),
    *("Reshape", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
    *("Transpose", "Trilu", "Unsqueeze"),
)
_PRODUCTS = (
    *("AveragePool", "Conv", "ConvTranspose", "Einsum", "Gemm", "GlobalAveragePool", "GlobalMaxPool"),
    *("MatMul", "MaxPool"),
)
_SOURCES = ("Constant", "ConstantOfShape", "Shape", "Size")
REPEATABLE = frozenset((*_ELEMENTWISE, *_ALONG_AXES, *_LAYOUT, *_PRODUCTS, *_SOURCES))
"""Of ONNX's own operators."""


def settings(attributes: Mapping[str, ir.Attr]) -> Hashable | None:
    """The attributes of a node, to be compared; None where one is a graph, a reference or the like."""
    found: list[Hashable] = []
    for name, attribute in attributes.items():
        kind, value = attribute.type, attribute.value
        if attribute.is_ref():
            return None
        if kind in _PLAIN:
            found.append((name, kind, value))
        elif kind == ir.AttributeType.TENSOR:
            found.append((name, constant(value)))
        else:
            return None
    return tuple(found)


def constant(tensor: ir.TensorProtocol) -> tuple[tuple[Any, ...], ir.DataType, Hashable | None]:
    """All that a rule looks at in a constant: its shape, its type and, to be compared, its elements.

    Elements of floating-point tensors are nothing to a rule. Large tensors are like no other.
    """
    dims: tuple[Any, ...] = tuple(tensor.shape)
    dtype = tensor.dtype
    if dtype in _FLOATS:
        return dims, dtype, None
    if dtype == ir.DataType.STRING or math.prod(dims) > _MOST_ELEMENTS:
        return dims, dtype, object()
    return dims, dtype, tensor.tobytes()
