"""The SiLU behind a GroupNorm as part of onnxruntime's CUDA operator.

    before   GroupNorm(activation=0) -> Transpose -> y -> Sigmoid -> Mul(y, .)
    after    GroupNorm(activation=1) -> Transpose

SiLU (Hendrycks and Gimpel, 2016; Elfwing et al., 2018) is x * sigmoid(x); ONNX 24 has it as Swish.
"""

from __future__ import annotations

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.graph.surgery import remove_dead, supersede
from normfuse.options import Leave
from normfuse.targets.absorbed import Absorbed
from normfuse.targets.group_norm import CUDA_GROUP_NORM
from normfuse.targets.kernels import CONTRIB


def absorb_silu(facts: Facts, graph: ir.Graph, leave: Leave) -> list[Absorbed]:
    """Let every GroupNorm of a graph compute the SiLU that alone reads it."""
    found = []
    for node in list(graph):
        if (node.domain, node.op_type) != (CONTRIB, "GroupNorm"):
            continue
        if node.attributes.get_int("activation", 0) != 0:
            continue
        last = node.outputs[0].consumers()
        if len(last) != 1 or last[0].op_type != "Transpose" or node.outputs[0].is_graph_output():
            continue
        y = last[0].outputs[0]
        ending = _silu(y)
        if ending is None or ending.graph is not node.graph or y.is_graph_output():
            continue
        old, new = y.name or "", ending.outputs[0].name or ""
        anchor = ending.name or new
        if leave("GroupNorm", anchor, new) is not None:
            continue
        node.attributes["activation"] = ir.AttrInt64("activation", 1)
        supersede(facts, ending.outputs[0], y)
        remove_dead(facts, [ending])
        found.append(
            Absorbed(
                norm=old,
                output=new,
                inputs=(),
                anchor=anchor,
                kind="GroupNorm",
                spelling="GroupNorm Transpose Sigmoid Mul",
                operator="GroupNorm",
                lowering=CUDA_GROUP_NORM.name,
                detail="with the SiLU behind it",
            )
        )
    return found


def _silu(y: ir.Value) -> ir.Node | None:
    """The node that ends y * sigmoid(y), where nothing else reads y."""
    readers = set(y.consumers())
    swish = next((n for n in readers if n.op_type == "Swish" and n.domain == ""), None)
    if swish is not None:
        return swish if len(readers) == 1 and swish.attributes.get_float("alpha", 1.0) == 1.0 else None
    sigmoid = next((n for n in readers if n.op_type == "Sigmoid"), None)
    if sigmoid is None or len(readers) != 2 or sigmoid.outputs[0].is_graph_output():
        return None
    (product,) = readers - {sigmoid}
    operands = set(product.inputs)
    alone = list(sigmoid.outputs[0].consumers()) == [product]
    is_product = product.op_type == "Mul" and operands == {y, sigmoid.outputs[0]}
    return product if alone and is_product else None
