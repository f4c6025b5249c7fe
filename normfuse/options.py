"""What a caller may ask for, and what a skip list means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from normfuse.errors import UsageError, did_you_mean

Leave = Callable[[str, str, str], str | None]
"""(kind, anchor, output name) -> the reason code for which a site is left out, or None."""

KINDS = (
    *("LayerNorm", "RMSNorm", "L2Norm", "InstanceNorm", "GroupNorm", "WeightNorm"),
    "LocalResponseNorm",
    *("BatchNorm", "Affine", "Residual"),
)


@dataclass(frozen=True)
class Options:
    """How to rewrite and verify one model.

    target: "onnx", "ort", "ort-cpu" or "ort-cuda"; None follows the providers.
    max_opset: the opset above which the model is not raised; None: as far as the target needs.
    providers: execution providers to verify on, such as "cpu", "cuda", "openvino" or a full name.
    dims: values of symbolic dimensions for the verification ({"S": 7}).
    verify: False writes without running anything.
    skip: kinds (`KINDS`) or names of nodes that are left as they are.
    seed: of the inputs that are made for the verification.
    dry_run: do everything, write nothing.
    copy_data: gather the weights in a data file of the output's own, also where the input's could be shared.
    in_place: replace the input, once the result has been verified.
    inputs: a .npz, a .npy or a folder of them that the verification runs on, in the place of made inputs.
    given: how single inputs are made, "random:LOW:HIGH", "zeros", "ones" or a `.npy` file, by input.
    custom_operators: the library of the model's custom operators, for the verification.
    max_memory: bytes; a model that needs more is not run, but certified rewrite by rewrite. None: as much as
        the machine can spare.
    illustrated: draw each distinct site and time the model, for a report for people; takes seconds.
    tune: measure the lowerings of each distinct site, and take the fastest.
    plan: a file of lowerings; those to take, or, with `tune`, where to write those that were taken.
    threads: of one operator while tuning; 0 is the runtime's own choice.
    """

    target: str | None = None
    max_opset: int | None = None
    providers: tuple[str, ...] = ("cpu",)
    dims: Mapping[str, int] = field(default_factory=dict)
    verify: bool = True
    skip: tuple[str, ...] = ()
    seed: int = 0
    dry_run: bool = False
    copy_data: bool = False
    in_place: bool = False
    inputs: Path | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    custom_operators: Path | None = None
    max_memory: int | None = None
    illustrated: bool = False
    tune: bool = False
    plan: Path | None = None
    threads: int = 1


def check_skip(skip: Iterable[str], model: ir.Model, where: str) -> None:
    """Refuse a skip list that names neither a kind nor a node or value of the model.

    Raises UsageError with the closest matches.
    """
    wanted = [name for name in skip if name not in KINDS]
    if not wanted:
        return
    known = set(KINDS)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        known.update(n for n in (node.name, *(v.name for v in node.outputs)) if n)
    for name in wanted:
        if name not in known:
            text = f"--skip {name!r}: {where} has no such node, and there is no such kind"
            raise UsageError("; ".join(filter(None, (text, did_you_mean(name, known)))))


def leaver(skip: Iterable[str], taken_back: Iterable[str]) -> Leave:
    """What is to be left out: what the user skips, and outputs of sites that failed their check."""
    skipped, failed = frozenset(skip), frozenset(taken_back)

    def leave(kind: str, anchor: str, output: str) -> str | None:
        if output in failed:
            return "rolled-back"
        return "skipped" if skipped & {kind, anchor, output} else None

    return leave
