"""Small models with affines beside linear operators, folded and compared: what the tests here have in common.

m = built("c = Conv(x, w) y = BN(c, *n)", x="float[2,4,9,9]", out="float[2,6,7,7]",
          w=normal(6, 4, 3, 3), **norm("n", 6))
done = folded(m)
assert done.operators == {"Conv": 1}
assert_agree(m, done.model)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import small_models

from normfuse.folding.fold import fold_all
from normfuse.folding.plan import FoldRecord
from normfuse.graph.facts import Facts
from normfuse.model_io import from_proto
from normfuse.model_io.serialize import to_proto
from normfuse.norms.refusal import Refusal

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Folded:
    """A folded model, what was done and what was left."""

    model: onnx.ModelProto
    records: list[FoldRecord]
    refusals: list[Refusal]

    @property
    def operators(self) -> Counter[str]:
        """How often each operator occurs, bodies included, constants aside."""
        return small_models.operators(self.model)

    @property
    def reasons(self) -> list[str]:
        """The reason codes of what was left."""
        return [refusal.reason for refusal in self.refusals]

    def weight(self, name: str) -> Array:
        """An initializer of the folded model."""
        return next(onnx.numpy_helper.to_array(t) for t in self.model.graph.initializer if t.name == name)

    @property
    def initializers(self) -> set[str]:
        """The names of all initializers."""
        return {tensor.name for tensor in self.model.graph.initializer}


def folded(model: onnx.ModelProto, skip: Sequence[str] = ()) -> Folded:
    """Fold a model; `skip` names outputs whose sites are left alone. The result passes the checker."""
    source = from_proto(model)
    records, refusals = fold_all(Facts(source.model), lambda kind, anchor, output: output in skip)
    old = model.ir_version < 4  # there, new constants are written as nodes
    result = to_proto(source.model, source) if old else ir.to_proto(source.model)
    onnx.checker.check_model(result)
    return Folded(result, records, refusals)


def built(
    body: str,
    *,
    x: str,
    out: str,
    opset: int = 17,
    ir_version: int = 8,
    overridable: Sequence[str] = (),
    more: dict[str, str] | None = None,
    **constants: Array,
) -> onnx.ModelProto:
    """A model of one graph; `BN(x, *n)` is a BatchNormalization with its four parameters, see `norm`.

    x, more: types of the inputs. out: that of y, or of all outputs as in ONNX's text format.
    """
    body = re.sub(r"\bBN\b", "BatchNormalization", body)
    body = re.sub(r"\*(\w+)", r"\1_scale, \1_bias, \1_mean, \1_var", body).replace("<>", "")
    outputs = out if " " in out else f"{out} y"
    return small_models.model(
        body,
        constants,
        outputs=outputs,
        opset=opset,
        ir_version=ir_version,
        overridable=overridable,
        x=x,
        **(more or {}),
    )


def norm(name: str, channels: int, dtype: Any = np.float32, seed: int = 0) -> dict[str, Array]:
    """Parameters of a BatchNormalization, none of them trivial."""
    rng = np.random.default_rng([seed, channels, *name.encode()])
    drawn = {
        "scale": rng.uniform(0.4, 1.6, channels) * rng.choice([-1, 1], channels),
        "bias": rng.normal(size=channels),
        "mean": rng.normal(size=channels),
        "var": rng.uniform(0.3, 2.0, channels),
    }
    return {f"{name}_{part}": values.astype(dtype) for part, values in drawn.items()}


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Random weights."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def assert_folds(model: onnx.ModelProto, **left: int) -> Folded:
    """Nothing is left but the given operators, the interface is kept, the outputs agree; it is idempotent."""
    done = folded(model)
    assert done.operators == left
    small_models.assert_agree(model, done.model)
    again = folded(done.model)
    assert not again.records
    assert again.model.SerializeToString() == done.model.SerializeToString()
    return done


def assert_left(model: onnx.ModelProto, *reasons: str) -> Folded:
    """The model is left as it was, for the given reasons."""
    done = folded(model)
    assert not done.records
    assert done.reasons == list(reasons)
    assert done.model.SerializeToString() == ir.to_proto(ir.from_proto(model)).SerializeToString()
    return done
