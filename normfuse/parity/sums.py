"""The sums of a piece: how many terms the longest adds up, and in which type.

By default they are of the type of what goes in. Half precision is often cast to float32 around a norm; then
the sums are of float32, though what goes in and comes out is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from normfuse.parity.dtypes import HALVES, roundoff

# The least unit roundoff of a type of half precision.
HALF = min(map(roundoff, HALVES))
PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def sum_unit(proto: onnx.ModelProto, unit: float) -> float:
    """Unit roundoff of the coarsest type that a piece sums in; `unit`, its coarsest, where that is not known.

    A LayerNormalization of half precision sums in float32 by its specification (stash_type 1).
    """
    if unit < HALF:
        return unit
    try:
        inferred = onnx.shape_inference.infer_shapes(proto).graph
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return unit
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    types = {v.name: v.type.tensor_type.elem_type for v in values}
    types |= {t.name: t.data_type for t in inferred.initializer}
    units = [_unit_of(node, types) for node in proto.graph.node if _sums(node)]
    return max((unit if u is None else u for u in units), default=unit)


def _sums(node: onnx.NodeProto) -> bool:
    kind = node.op_type
    norm = kind.endswith("Normalization") and kind != "BatchNormalization"
    return norm or kind.startswith(("Reduce", "Global", "AveragePool", "LRN")) or kind in PRODUCTS


def _unit_of(node: onnx.NodeProto, types: Mapping[str, int]) -> float | None:
    kind = types.get(node.input[0], TensorProto.UNDEFINED)
    stashes = node.op_type in ("LayerNormalization", "RMSNormalization")
    if stashes and not any(a.name == "stash_type" and a.i != TensorProto.FLOAT for a in node.attribute):
        return roundoff(np.float32)
    if kind == TensorProto.UNDEFINED:
        return None
    return roundoff(onnx.helper.tensor_dtype_to_np_dtype(kind)) or None


def reduction_size(proto: onnx.ModelProto, values: Mapping[str, Any]) -> int:
    """The largest number of terms that one sum of the piece adds up."""
    return max((_terms(node, values) for node in proto.graph.node), default=1)


def _terms(node: onnx.NodeProto, values: Mapping[str, Any]) -> int:
    kind = node.op_type
    read = [values.get(name) for name in node.input]
    first, second = (*read, None, None)[:2]
    if not isinstance(first, np.ndarray):
        return 1
    if kind.startswith("Reduce") or kind.startswith("Global"):
        result = values.get(node.output[0])
        return first.size // max(1, result.size) if isinstance(result, np.ndarray) else 1
    if kind in ("InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization"):
        return first.size // max(1, int(np.prod(first.shape[:2])))
    if kind.endswith("Normalization") and kind != "BatchNormalization":
        return int(second.size) if isinstance(second, np.ndarray) else first.shape[-1]
    if kind in PRODUCTS and isinstance(second, np.ndarray):
        # Of a matrix either side may be the reduced one; the longer is an upper bound.
        return max(int(np.prod(second.shape[1:])), int(np.prod(second.shape[:1] + second.shape[2:])))
    return 1
