"""The table of operators: what each ONNX operator does to polynomials, a few lines an operator.

An operator is a function (Context, node, traced operands) -> Traced for its first output, or End. Operators
that are not in the table end a walk.
"""

from normfuse.algebra.operators.context import Context, Operator
from normfuse.algebra.operators.elementwise import ELEMENTWISE
from normfuse.algebra.operators.fused import FUSED
from normfuse.algebra.operators.layout import LAYOUT
from normfuse.algebra.operators.reductions import REDUCTIONS

OPERATORS: dict[str, Operator] = {**ELEMENTWISE, **REDUCTIONS, **LAYOUT, **FUSED}

__all__ = ["OPERATORS", "REDUCTIONS", "Context", "Operator"]
