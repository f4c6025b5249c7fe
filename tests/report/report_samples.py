"""Reports of runs that never were."""

from __future__ import annotations

from dataclasses import replace

from normfuse.parity.verdict import ModelVerdict, OutputFigures, SiteVerdict
from normfuse.report.picture import Box, Picture
from normfuse.report.record import Latency, Repeat, Report, Site

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
    model="model.onnx",
    target="ort-cpu",
    providers=("cpu",),
    sites=SITES,
    nodes_before=512,
    nodes_after=214,
    opset_before=13,
    opset_after=17,
    standard_onnx=False,
    written="model.fused.onnx",
    parity=VERDICT,
    warnings=("a BatchNormalization is in training mode",),
    seconds={"read": 0.01, "verify": 1.25},
    bytes_before=4_200_000,
    bytes_after=4_100_000,
    depends_on=("/models/model.onnx.data",),
    foreign=("LayerNormalization",),
)
PICTURE = Picture(
    before=(
        Box("input"),
        Box("ReduceMean", "ReduceMean", "axes -1", (0,)),
        Box("Sub", "Sub", "", (0, 1)),
        Box("Pow", "Pow", "2", (2,)),
        Box("ReduceMean", "ReduceMean", "axes -1", (3,)),
        Box("Add", "Add", "1e-05", (4,)),
        Box("Sqrt", "Sqrt", "", (5,)),
        Box("Div", "Div", "", (2, 6)),
    ),
    after=(Box("input"), Box("LayerNormalization", "LayerNormalization", "axis -1, epsilon 1e-05", (0,))),
)
LATENCY = Latency("cpu", 1, "x [2, 7]", 40, 2e-3, 1e-3, 8e-4, 2.0, 1.9, 2.1, 1.02)
REPEAT = Repeat("normfuse model.onnx --report r.html", 3, {"S": 7}, {"onnx": "1.23.2"}, "Linux x86_64")
ILLUSTRATED = replace(
    FULL,
    sites=tuple(replace(site, picture=0) if site.kind == "LayerNorm" else site for site in SITES),
    pictures=(PICTURE,),
    latency=LATENCY,
    repeat=REPEAT,
)
EMPTY = Report("m.onnx", "onnx", ("cpu",), (), 3, 3, 17, 17, True, "m.fused.onnx")
NOT_VERIFIED = replace(FULL, parity=None)
