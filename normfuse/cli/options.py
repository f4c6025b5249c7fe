"""The options of the command line: what each is called, and what --help says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The ONNX model; - reads standard input.", show_default=False)
]
First = Annotated[Path, typer.Argument(metavar="A", help="The original.", show_default=False)]
Second = Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Where to write; - is standard output. Default: MODEL.fused.onnx beside it.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="onnx|ort|ort-cpu|ort-cuda",
        help="What the result is for: standard operators only, or onnxruntime. Default: what --ep says.",
        show_default=False,
    ),
]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--ep",
        metavar="cpu|cuda",
        help="Execution provider to write for and to verify on; repeatable. Default: cpu.",
        show_default=False,
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of a symbolic dimension while verifying; repeatable.",
        show_default=False,
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option(
        help="Verify on these inputs: a .npz, a .npy, or a folder of either or of ONNX test data sets.",
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
Skip = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND|NODE",
        help="Leave out a kind (LayerNorm, BatchNorm, ...) or one node by name; repeatable.",
        show_default=False,
    ),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.json", help="Also write a report.", show_default=False),
]
Seed = Annotated[
    int, typer.Option(metavar="N", help="Seed of the inputs that are made for verifying.", min=0)
]
InPlace = Annotated[bool, typer.Option("--in-place", help="Replace MODEL itself, once it is verified.")]
CopyData = Annotated[
    bool, typer.Option("--copy-data", help="Give the output all its weights, instead of sharing MODEL's.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Do everything, verify too, but write no model.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not run the result; write it unproven.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 when a rewrite had to be taken back.")]
Check = Annotated[bool, typer.Option("--check", help="Write no model; exit 5 if there is something to fuse.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
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
    from importlib.metadata import PackageNotFoundError, version

    from normfuse import __version__

    lines = [f"normfuse {__version__}"]
    for package in ("onnx", "onnx-ir", "onnxruntime", "onnxruntime-gpu"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    try:
        import onnxruntime
    except ImportError:
        lines.append("no onnxruntime: pip install normfuse[cpu] or normfuse[cuda]")
    else:
        lines.append(f"providers: {', '.join(onnxruntime.get_available_providers())}")
    return "\n".join(lines)
