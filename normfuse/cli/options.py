"""The options of the command line: what each is called, and what --help says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from normfuse.cli.completion import among, commands, kinds, providers, reasons, targets

Models = Annotated[
    list[Path],
    typer.Argument(
        metavar="MODEL...",
        help="ONNX models, or folders that hold some; - reads standard input.",
        autocompletion=among(commands),
        show_default=False,
    ),
]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="The ONNX model; - reads standard input.",
        autocompletion=among(commands),
        show_default=False,
    ),
]
First = Annotated[Path, typer.Argument(metavar="A", help="The original.", show_default=False)]
Second = Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.", show_default=False)]
BenchModels = Annotated[
    list[Path],
    typer.Argument(
        metavar="A [B …]", help="The models; A is what the others are compared with.", show_default=False
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Where to write: a file, - for standard output, a folder for several models. "
        "Default: MODEL.fused.onnx beside it.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="onnx|ort|ort-cpu|ort-cuda",
        autocompletion=among(targets),
        help="What the result is for: standard operators only, or onnxruntime. Default: what --ep says.",
        show_default=False,
    ),
]
MaxOpset = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Never raise the opset above N; sites that need more are left. Default: as far as needed.",
        show_default=False,
    ),
]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--ep",
        metavar="NAME",
        help="Execution provider to write for and to run on: cpu, cuda, openvino, or any other that the "
        "installed onnxruntime has; repeatable. Default: cpu.",
        autocompletion=among(providers),
        show_default=False,
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of a symbolic dimension when the model runs; repeatable.",
        show_default=False,
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option(
        help="Run on these inputs: a .npz, a .npy, or a folder of either or of ONNX test data sets.",
        show_default=False,
    ),
]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=HOW",
        help="How one input is made: random:LOW:HIGH, zeros, ones or FILE.npy; repeatable.",
        show_default=False,
    ),
]
CustomOps = Annotated[
    Path | None,
    typer.Option(
        "--custom-op-library",
        metavar="FILE",
        help="The library of the model's custom operators, for verifying.",
        show_default=False,
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="A model that takes more to run is verified rewrite by rewrite: 2GB. Default: what is free.",
        show_default=False,
    ),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND|NODE",
        autocompletion=among(kinds),
        help="Leave out a kind (LayerNorm, BatchNorm, ...) or one node by name; repeatable.",
        show_default=False,
    ),
]
ReportFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Also write a report: .html for people, .json, .xml (JUnit) or .sarif for programs; repeatable.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the inputs that are made.", min=0)]
Threads = Annotated[
    int, typer.Option(metavar="N", help="Threads of one operator; 0 is onnxruntime's own choice.", min=0)
]
Tune = Annotated[
    bool,
    typer.Option("--tune", help="Measure the lowerings of each site on this machine; take the fastest."),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="FILE.json",
        help="Take the lowerings of this file; with --tune, write those that were taken.",
        show_default=False,
    ),
]
TuneThreads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="With --tune: threads of one operator; 0 is onnxruntime's own choice. Default: 1.",
        show_default=False,
        min=0,
    ),
]
BenchSeconds = Annotated[
    float, typer.Option("--seconds", metavar="S", help="How long to measure, about.", min=0.0)
]
BenchProfile = Annotated[bool, typer.Option("--profile", help="Also show which operators take the time.")]
InPlace = Annotated[bool, typer.Option("--in-place", help="Replace MODEL itself, once it is verified.")]
CopyData = Annotated[
    bool, typer.Option("--copy-data", help="Give the output all its weights, instead of sharing MODEL's.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Do everything, verify too, but write no model.")]
Recursive = Annotated[bool, typer.Option("--recursive", help="Also the folders inside a folder.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Models at a time.", min=1)]
Dask = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Run the models on a Dask cluster.", show_default=False),
]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not run the result; write it unproven.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 when a rewrite had to be taken back.")]
Check = Annotated[bool, typer.Option("--check", help="Write no model; exit 5 if there is something to fuse.")]
Code = Annotated[
    str | None,
    typer.Argument(
        metavar="[CODE]",
        help="For example extra-consumer.",
        autocompletion=among(reasons),
        show_default=False,
    ),
]
NodeName = Annotated[
    str | None,
    typer.Option("--node", metavar="NAME", help="Explain one node in full.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Locate = Annotated[
    bool, typer.Option("--locate", help="Where the models differ, name the first tensor that does.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def _print_versions(wanted: bool) -> None:
    if wanted:
        typer.echo(_versions())
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_print_versions, is_eager=True, help="Print the versions in use, and exit."
    ),
]


def _versions() -> str:
    from normfuse import __version__
    from normfuse.versions import installed

    packages = installed(("onnx", "onnx-ir", "onnxruntime", "onnxruntime-gpu"))
    lines = [f"normfuse {__version__}", *(f"{package} {version}" for package, version in packages.items())]
    try:
        import onnxruntime
    except ImportError:
        lines.append("no onnxruntime: pip install normfuse[cpu] or normfuse[cuda]")
    else:
        lines.append(f"providers: {', '.join(onnxruntime.get_available_providers())}")
    return "\n".join(lines)
