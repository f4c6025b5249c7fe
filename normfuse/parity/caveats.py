"""What a user should know before the figures: training mode, half precision on CPU, custom operators."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from normfuse.parity.model import Model, every_node
from normfuse.parity.providers import IN_FLOAT32, SUFFIX, precision_note, provider_name
from normfuse.parity.settings import Settings

# Domains that onnxruntime brings along.
BUILT_IN = {
    "", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc",
    "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training", "org.pytorch.aten",
}  # fmt: skip


def before(model: Model, settings: Settings) -> list[str]:
    """Notes that stand before the figures."""
    notes = []
    trained = training_nodes(model)
    if trained:
        listed = ", ".join(trained[:3]) + (" …" if len(trained) > 3 else "")
        notes.append(f"exported in training mode: {len(trained)} nodes compute as in training ({listed})")
    name = provider_name(settings.provider)
    if _has_half(model) and name in IN_FLOAT32:
        short = name.removesuffix(SUFFIX)
        notes.append(
            f"half precision on {short} is computed in float32, so this says little of other providers"
        )
    return notes + list(filter(None, [precision_note(name)]))


def training_nodes(model: Model) -> list[str]:
    """BatchNormalization with batch statistics, and Dropout that drops."""
    true = {
        t.name
        for t in model.main.initializers.values()
        if t.data_type == TensorProto.BOOL and _truth(model, t)
    }
    true |= {n.output[0] for n in every_node(model.proto.graph) if n.op_type == "Constant" and _is_true(n)}
    found = []
    for node in every_node(model.proto.graph):
        mode = next((a.i for a in node.attribute if a.name == "training_mode"), 0)
        dropping = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] in true
        if (node.op_type == "BatchNormalization" and mode) or dropping:
            found.append(node.name or node.output[0])
    return found


def _truth(model: Model, tensor: TensorProto) -> bool:
    return bool(model.array(tensor).any())


def _is_true(node: onnx.NodeProto) -> bool:
    tensors = [a.t for a in node.attribute if a.name == "value" and a.t.data_type == TensorProto.BOOL]
    return any(onnx.numpy_helper.to_array(t).any() for t in tensors)


def _has_half(model: Model) -> bool:
    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    values = (*model.proto.graph.input, *model.proto.graph.output)
    return any(v.type.tensor_type.elem_type in halves for v in values) or any(
        t.data_type in halves for t in model.main.initializers.values()
    )


def custom_operators(model: Model) -> list[str]:
    """Operators of domains that the runtime does not bring along, functions of the model aside."""
    own = {(f.domain, f.name) for f in model.proto.functions}
    nodes = every_node(model.proto.graph)
    found = {
        f"{n.domain}.{n.op_type}"
        for n in nodes
        if n.domain not in BUILT_IN and (n.domain, n.op_type) not in own
    }
    return sorted(found)
