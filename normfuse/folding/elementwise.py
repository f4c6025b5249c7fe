"""Which operators are an affine with constant parameters, and which one.

    BatchNormalization in inference, Mul, Div, Add, Sum of two, Sub, Neg    an affine
    Identity, Dropout in inference, Cast to the type that is there already    the identity

Not one: a parameter that is computed at run time or that a caller may override, one that enlarges the
tensor, one that is not finite; BatchNormalization in training mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from normfuse.folding.affine import Affine, Array, affine, identity
from normfuse.folding.stop import Stop
from normfuse.graph.facts import Facts

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
MAX_READ = 1 << 16
"""A parameter with more elements than this, unless it is a vector, is never per channel and is not read."""


@dataclass(frozen=True)
class Step:
    """node computes affine(data)."""

    node: ir.Node
    data: ir.Value
    affine: Affine


def is_affine(facts: Facts, node: ir.Node) -> bool:
    """Whether `node` looks like an affine, without reading its parameters."""
    return node.op_type in _AFFINES and data_of(facts, node) is not None


def is_identity(facts: Facts, node: ir.Node) -> bool:
    """Whether `node` hands its input on unchanged."""
    return node.op_type in _IDENTITIES and data_of(facts, node) is not None


def is_widening(facts: Facts, node: ir.Node) -> bool:
    """A Cast to a wider float: what follows is rounded once more when it is cast back."""
    if node.op_type != "Cast" or node.domain != "":
        return False
    given, made = facts.shapes.dtype(node.inputs[0]), facts.shapes.dtype(node.outputs[0])
    if given not in FLOATS or made not in FLOATS or given is None or made is None:
        return False
    return made.itemsize > given.itemsize


def data_of(facts: Facts, node: ir.Node) -> ir.Value | None:
    """The operand that an affine or an identity operator changes, without reading any parameter."""
    if node.domain != "":
        return None
    if node.op_type == "BatchNormalization":
        return node.inputs[0]
    if node.op_type in _AFFINES or node.op_type in _IDENTITIES:
        if facts.shapes.dtype(node.outputs[0]) not in FLOATS:
            return None
        if node.op_type in _BINARY:
            operands = _operands(facts, node)
            return None if operands is None else operands[0]
        if node.op_type in _IDENTITIES and not _IDENTITIES[node.op_type](facts, node):
            return None
        return node.inputs[0]
    return None


def read(facts: Facts, node: ir.Node) -> Step | Stop | None:
    """The affine that `node` is; a Stop when it is one that must not be folded; None when it is none."""
    data = data_of(facts, node)
    if data is None:
        return None
    rank = facts.shapes.rank(data)
    if rank is None:
        return Stop("unknown-shape", f"the rank of {data.name!r} is not known")
    if node.op_type in _IDENTITIES:
        return Step(node, data, identity(rank))
    found = _AFFINES[node.op_type](facts, node, data)
    return found if isinstance(found, Stop) else Step(node, data, found)


def is_training(facts: Facts, node: ir.Node) -> bool:
    """Whether a BatchNormalization normalizes by the statistics of its batch.

    From opset 14 on an attribute says so, from 7 to 13 the presence of the further outputs, before that
    the absence of is_test.
    """
    if facts.opset >= 14:
        return bool(node.attributes.get_int("training_mode", 0))
    if facts.opset >= 7:
        return any(out.name for out in node.outputs[1:])
    return not node.attributes.get_int("is_test", 0)


def _batch_normalization(facts: Facts, node: ir.Node, data: ir.Value) -> Affine | Stop:
    if is_training(facts, node):
        return Stop("training-mode", "export the model in evaluation mode")
    if any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
        return Stop("training-mode", "its running statistics are read")
    parameters: list[Array] = []
    for operand in node.inputs[1:5]:
        array = None if operand is None else facts.constants.get(operand)
        if array is None:
            return _not_constant(facts, operand)
        parameters.append(array.astype(np.float64))
    rank = facts.shapes.rank(data) or 0
    shape = _parameter_shape(facts, node, parameters, rank)
    if len(shape) != rank:
        return Stop("unknown-shape", f"the parameters do not fit an input of rank {rank}")
    gamma, beta, mean, variance = parameters
    spread = variance + epsilon_of(node)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(spread)
        shift = beta - mean * scale
    positive = np.where(spread > 0, spread, np.nan)
    named = {"variance + epsilon": positive, "mean": mean, "gamma": gamma, "beta": beta, "shift": shift}
    for name, array in named.items():
        if not np.isfinite(array).all():
            channel = int(np.argmin(np.isfinite(array).reshape(-1)))
            value = (spread if array is positive else array).reshape(-1)[channel]
            return Stop("not-finite-statistics", f"channel {channel}: {name} is {value:g}", reached=True)
    return affine(scale.reshape(shape), shift.reshape(shape))


def _parameter_shape(facts: Facts, node: ir.Node, parameters: list[Array], rank: int) -> tuple[int, ...]:
    """How the parameters stand against the input: along axis 1, or one for each element up to opset 8."""
    if len({array.shape for array in parameters}) != 1 or len(parameters) != 4:
        return ()
    if facts.opset < 9 and not node.attributes.get_int("spatial", 1):
        return (1, *parameters[0].shape)
    return (1, parameters[0].size) + (1,) * (rank - 2)


def epsilon_of(node: ir.Node) -> float:
    """The epsilon of a BatchNormalization: the float32 that its attribute is."""
    return float(np.float32(node.attributes.get_float("epsilon", 1e-5)))


def _operands(facts: Facts, node: ir.Node) -> tuple[ir.Value, int] | None:
    """The run-time operand, and the index of the constant one."""
    if len(node.inputs) != 2 or facts.opset < 7:
        return None  # before opset 7 broadcasting followed other rules
    first, second = node.inputs
    if first is None or second is None:
        return None
    if facts.constants.is_known(second):
        return None if facts.constants.is_known(first) else (first, 1)
    return (second, 0) if facts.constants.is_known(first) and node.op_type != "Div" else None


def _parameter(facts: Facts, node: ir.Node, data: ir.Value) -> Array | Stop:
    """The constant operand in float64, with the rank of `data`; it must not enlarge it."""
    operands = _operands(facts, node)
    dims = facts.shapes.of(data)
    if operands is None or dims is None:
        return Stop("unknown-shape", f"the shape of {data.name!r} is not known")
    operand = node.inputs[operands[1]]
    stated = facts.shapes.of(operand) or ()
    sizes = [d for d in stated if d != 1]
    if len(sizes) > 1 and np.prod([d for d in sizes if isinstance(d, int)], dtype=np.float64) > MAX_READ:
        return Stop("not-per-channel", f"{operand.name!r} has shape {list(stated)}")  # type: ignore[union-attr]
    array = facts.constants.get(operand)
    assert operand is not None
    assert array is not None
    if array.ndim > len(dims):
        return Stop("affine-expands-shape", f"{operand.name!r} has rank {array.ndim}, not {len(dims)}")
    array = array.astype(np.float64).reshape((1,) * (len(dims) - array.ndim) + array.shape)
    for size, dim in zip(array.shape, dims, strict=True):
        if size not in (1, dim):
            reason = "affine-expands-shape" if dim == 1 else "unknown-shape"
            return Stop(reason, f"{operand.name!r} of shape {list(array.shape)} meets {list(dims)}")
    if not np.isfinite(array).all():
        channel = int(np.argmin(np.isfinite(array).reshape(-1)))
        return Stop("not-finite-statistics", f"{operand.name!r} is not finite at {channel}", reached=True)
    return array


def _multiply(facts: Facts, node: ir.Node, data: ir.Value) -> Affine | Stop:
    c = _parameter(facts, node, data)
    return c if isinstance(c, Stop) else affine(c, np.zeros((1,) * c.ndim))


def _divide(facts: Facts, node: ir.Node, data: ir.Value) -> Affine | Stop:
    c = _parameter(facts, node, data)
    if isinstance(c, Stop):
        return c
    with np.errstate(all="ignore"):
        inverse = 1.0 / c
    if not np.isfinite(inverse).all():
        channel = int(np.argmin(np.isfinite(inverse).reshape(-1)))
        return Stop("not-finite-statistics", f"channel {channel} is divided by 0", reached=True)
    return affine(inverse, np.zeros((1,) * c.ndim))


def _add(facts: Facts, node: ir.Node, data: ir.Value) -> Affine | Stop:
    c = _parameter(facts, node, data)
    return c if isinstance(c, Stop) else affine(np.ones((1,) * c.ndim), c)


def _subtract(facts: Facts, node: ir.Node, data: ir.Value) -> Affine | Stop:
    c = _parameter(facts, node, data)
    if isinstance(c, Stop):
        return c
    one = np.ones((1,) * c.ndim)
    return affine(one, -c) if node.inputs[0] is data else affine(-one, c)


def _negate(facts: Facts, node: ir.Node, data: ir.Value) -> Affine | Stop:
    rank = facts.shapes.rank(data) or 0
    return affine(-np.ones((1,) * rank), np.zeros((1,) * rank))


def _not_constant(facts: Facts, operand: ir.Value | None) -> Stop:
    if operand is not None and facts.constants.depends_on_overridable(operand):
        return Stop("overridable-initializer", f"{operand.name!r} is also a graph input")
    name = "a parameter" if operand is None else repr(operand.name)
    return Stop("affine-not-constant", f"{name} is computed at run time")


def _always(facts: Facts, node: ir.Node) -> bool:
    return True


def _is_same_type(facts: Facts, node: ir.Node) -> bool:
    return facts.shapes.dtype(node.inputs[0]) == facts.shapes.dtype(node.outputs[0])


def _is_idle_dropout(facts: Facts, node: ir.Node) -> bool:
    if any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
        return False
    if facts.opset < 7:
        return bool(node.attributes.get_int("is_test", 0))
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    if mode is None:
        return True
    training = facts.constants.get(mode)
    return training is not None and not training.any()


_BINARY = frozenset({"Mul", "Div", "Add", "Sum", "Sub"})
_AFFINES: dict[str, Callable[[Facts, ir.Node, ir.Value], Affine | Stop]] = {
    "BatchNormalization": _batch_normalization,
    "Mul": _multiply,
    "Div": _divide,
    "Add": _add,
    "Sum": _add,
    "Sub": _subtract,
    "Neg": _negate,
}
_IDENTITIES: dict[str, Callable[[Facts, ir.Node], bool]] = {
    "Identity": _always,
    "Cast": _is_same_type,
    "Dropout": _is_idle_dropout,
}
