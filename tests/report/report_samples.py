"""Reports of runs that never were."""

from __future__ import annotations

from dataclasses import replace

from normfuse.parity.verdict import ModelVerdict, OutputFigures, SiteVerdict
from normfuse.report.record import Report, Site

LOGITS = OutputFigures("logits", "float32", 3.1e-6, 3.1e-7, 4, 1.0, 1e-8, 1e-4, 0, True)
POOLED = OutputFigures("pooled", "float32", 1e-8, 1e-9, 1, 1.0, 1e-8, 1e-4, 0, True)
VERDICT = ModelVerdict(
    "equal", "cpu", (POOLED, LOGITS), ("B=2 S=7, normal, seed 0", "B=1 S=1, rows"), ("a note",)
)
SITES = (
    Site("LayerNorm", "fused", "ln1/Div", "y1", "x", "ReduceMean Sub Pow ReduceMean Add Sqrt Div",
         "LayerNormalization",
         axes=(-1,), epsilon=1e-5, nodes_replaced=7, parity=SiteVerdict("improved", 1e-6, 1e-7, 1e-5)),
    Site("LayerNorm", "fused", "ln2/Div", "y2", "x", "ReduceMean Sub Div", "LayerNormalization",
         outside="affine-not-constant"),
    Site("BatchNorm", "folded", "bn1", "y3", operator="Conv"),
    Site("Residual", "guarded", "add1", "y4", operator="Sum"),
    Site("RMSNorm", "left", "rms1", "y5", reason="eps-outside-sqrt",
         detail="epsilon 1e-6 stands behind the root"),
    Site("RMSNorm", "left", "rms2", "y6", reason="eps-outside-sqrt"),
    Site("LayerNorm", "rolled-back", "ln3", "y7", reason="rolled-back"),
)  # fmt: skip
FULL = Report(
    "model.onnx", "ort-cpu", ("cpu",), SITES, 512, 214, 13, 17, False, "model.fused.onnx", VERDICT,
    ("a BatchNormalization is in training mode",), {"read": 0.01, "verify": 1.25}, 4_200_000, 4_100_000,
    ("/models/model.onnx.data",), ("LayerNormalization",),
)  # fmt: skip
EMPTY = Report("m.onnx", "onnx", ("cpu",), (), 3, 3, 17, 17, True, "m.fused.onnx")
NOT_VERIFIED = replace(FULL, parity=None)
