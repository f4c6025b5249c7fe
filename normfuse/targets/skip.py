"""A residual add, and a constant bias before it, as part of the norm behind them, on CUDA.

    before   Add(z, bias) -> Add(., r) -> LayerNormalization(scale, shift)       three kernels
    after    com.microsoft.SkipLayerNormalization(z, r, scale, shift, bias)      one

Where the sum is used again it is the operator's fourth output. The kernel (contrib_ops/cuda/bert/
skip_layer_norm*, read 2026-11) sums in float32 (onnxruntime pull request 28682; before, in the tensor's own
type), and takes the variance as E[x²] - E[x]²: exact enough for halves, and for RMSNorm, which has no mean;
not for LayerNorm in float32 far from zero, which is only said so where a plan asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from normfuse.graph.facts import Facts
from normfuse.graph.surgery import remove_dead, supersede
from normfuse.options import Leave
from normfuse.targets import kernels
from normfuse.targets.absorbed import Absorbed
from normfuse.targets.plan import Plan, chosen

SKIP = "skip-layer-norm"
"""The name of this way in plans."""
PLAIN = "separate-add"
"""The name of the way without it, for norms that had no other choice."""

_SKIPPING = {
    "LayerNormalization": "SkipLayerNormalization",
    "RMSNormalization": "SkipSimplifiedLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}
_SUMS_IN_FLOAT32 = (1, 32)
"""The release that is known to; older ones may."""


@dataclass(frozen=True)
class _Site:
    """A norm and what stands before it: `first + second` (`first` may still lack a constant bias)."""

    norm: ir.Node
    add: ir.Node
    first: ir.Value
    second: ir.Value
    bias: ir.Value | None

    @property
    def operator(self) -> str:
        return _SKIPPING[self.norm.op_type]


def absorb_residuals(
    facts: Facts,
    graph: ir.Graph,
    runtimes: tuple[str, ...],
    leave: Leave,
    plan: Plan,
    choices: dict[str, tuple[str, ...]],
) -> list[Absorbed]:
    """Make one operator of every residual add and norm of a graph for which that is exact.

    leave: (kind, anchor, output) -> a reason to leave one as it is, or None. choices: what tuning may try; it
    gets what each norm that is found here has.
    """
    found = []
    for node in list(graph):
        site = _site(facts, node, runtimes)
        if site is None:
            continue
        output = node.outputs[0].name or ""
        others = choices.get(output) or (PLAIN,)
        names = (SKIP, *others) if _keeps_digits(facts, site) else (*others, SKIP)
        choices[output] = names
        wish = chosen(plan, output, names) or names[0]
        if wish == SKIP and leave("Residual", site.add.name or output, output) is None:
            found.append(_absorb(facts, site))
    return found


def _site(facts: Facts, node: ir.Node, runtimes: tuple[str, ...]) -> _Site | None:
    x = node.inputs[0] if node.op_type in _SKIPPING and node.domain == "" else None
    add = None if x is None else x.producer()
    if x is None or add is None or add.graph is not node.graph or not _is_over_last(facts, node, x):
        return None
    if add.op_type not in ("Add", "Sum") or add.domain != "" or len(add.inputs) != 2:
        return None
    dtype, (first, second) = facts.shapes.dtype(x), add.inputs
    if dtype is None or first is None or second is None:
        return None
    if any(facts.constants.is_known(v) or facts.shapes.of(v) != facts.shapes.of(x) for v in (first, second)):
        return None
    if not kernels.has_kernel(_SKIPPING[node.op_type], runtimes, dtype):
        return None
    width = (facts.shapes.of(x) or ())[-1]
    if not all(_is_vector(facts, v, width, dtype) for v in node.inputs[1:] if v is not None):
        return None
    return _with_bias(facts, _Site(node, add, first, second, None), width, dtype)


def _is_over_last(facts: Facts, node: ir.Node, x: ir.Value) -> bool:
    """Whether a norm is over the last axis of a batch of sequences, with one output."""
    rank = facts.shapes.rank(x)
    if rank != 3 or any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
        return False
    return node.attributes.get_int("axis", -1) in (-1, rank - 1)


def _is_vector(facts: Facts, value: ir.Value, width: int | str, dtype: ir.DataType) -> bool:
    """Whether a parameter is an initializer of one number for each element of a row."""
    same = facts.shapes.of(value) == (width,) and facts.shapes.dtype(value) == dtype
    return same and value.is_initializer() and facts.constants.is_known(value)


def _with_bias(facts: Facts, site: _Site, width: int | str, dtype: ir.DataType) -> _Site:
    """The same with the constant that is added to one of the two, where nothing else reads the result."""
    for value, other in ((site.first, site.second), (site.second, site.first)):
        add = value.producer()
        alone = len(value.uses()) == 1 and not value.is_graph_output()
        if add is None or not alone or add.op_type != "Add" or add.domain != "":
            continue
        for data, bias in (tuple(add.inputs), tuple(reversed(add.inputs))):
            if data is None or bias is None or not _is_vector(facts, bias, width, dtype):
                continue
            if facts.shapes.of(data) == facts.shapes.of(value) and not facts.constants.is_known(data):
                return _Site(site.norm, site.add, data, other, bias)
    return site


def _keeps_digits(facts: Facts, site: _Site) -> bool:
    """Whether the kernel is as exact as the add and the norm."""
    half = facts.shapes.dtype(site.norm.outputs[0]) in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    if half:
        release = kernels.release()
        return release is None or tuple(map(int, release.split(".")[:2])) >= _SUMS_IN_FLOAT32
    return site.operator == "SkipSimplifiedLayerNormalization"


def _absorb(facts: Facts, site: _Site) -> Absorbed:
    norm, total = site.norm, site.add.outputs[0]
    scale, shift = norm.inputs[1], (norm.inputs[2] if len(norm.inputs) > 2 else None)
    after = [shift, site.bias] if site.operator == "SkipLayerNormalization" else [site.bias]
    while after and after[-1] is None:
        after.pop()
    needed = len(total.uses()) > 1 or total.is_graph_output()
    wish = f"{norm.outputs[0].name}/{site.operator}"
    node = ir.node(
        site.operator,
        [site.first, site.second, scale, *after],
        {"epsilon": norm.attributes.get_float("epsilon", 1e-5)},
        domain=kernels.CONTRIB,
        name=facts.names.node(wish),
        num_outputs=4 if needed else 1,
    )
    for out in node.outputs:
        out.name = ""
    assert site.add.graph is not None
    site.add.graph.insert_after(site.add, [node])
    output, anchor = norm.outputs[0].name or "", norm.name or norm.outputs[0].name or ""
    supersede(facts, norm.outputs[0], node.outputs[0])
    if needed:
        norm.replace_input_with(0, None)
        supersede(facts, total, node.outputs[3])
    remove_dead(facts, [norm, site.add])
    facts.model.opset_imports.setdefault(kernels.CONTRIB, 1)
    taken = "residual add" if site.bias is None else "residual add and the bias"
    return Absorbed(
        norm=output,
        output=output,
        inputs=tuple(dict.fromkeys((site.first.name or "", site.second.name or ""))),
        anchor=anchor,
        kind="Residual",
        spelling=f"Add {norm.op_type}",
        operator=site.operator,
        lowering=SKIP,
        detail=f"with the {taken} before it",
    )
