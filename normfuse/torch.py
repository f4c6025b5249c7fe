"""From a PyTorch module to a fused ONNX model that is verified against the module itself.

    module -> torch.onnx.export -> optimize (all of it proved) -> its outputs against the module's

The last step also tells of what goes wrong in the export, which no comparison of two ONNX models sees. Its
bound is that of a whole model: 8 times the module's own noise floor, which is how far it moves when its
parameters and inputs move by one ulp, and 32 roundings of the output's type.

Needs torch (extra `normfuse[torch]`).
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import torch
from torch.utils import _pytree as pytree

from normfuse import api, model_io
from normfuse.errors import CannotVerifyError, ParityError
from normfuse.options import Options
from normfuse.parity.compare import Distance, distance
from normfuse.parity.dtypes import is_float, roundoff
from normfuse.parity.sessions import RuntimeRefusalError, Session
from normfuse.parity.settings import Array, Settings
from normfuse.parity.whole import ROUNDOFFS, TIMES_NOISE
from normfuse.report.record import Report

NUDGES = 3


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    path: str | os.PathLike[str],
    *,
    kwargs: dict[str, Any] | None = None,
    options: Options | None = None,
    **export_options: Any,
) -> api.Result:
    """Export a module, fuse it, verify the result against the module, and write it.

    module: in evaluation mode. args, kwargs: what it is called with, as `torch.onnx.export` takes them; they
        are also what the result is compared on.
    path: the file to write. options: as of `normfuse.optimize`.
    export_options: passed on to `torch.onnx.export` (opset_version, dynamic_shapes, dynamo, …).

    Raises what `optimize` raises; ParityError where the result is not what the module computes and
    CannotVerifyError where that cannot be told: then nothing is written.
    """
    options, path = options or Options(), Path(path)
    with tempfile.TemporaryDirectory(prefix="normfuse-") as folder:
        source = Path(folder, "exported.onnx")
        torch.onnx.export(module, args, str(source), kwargs=kwargs, **export_options)
        if not options.verify:
            return api.optimize(source, path, options)
        fused = Path(folder, "fused.onnx")
        report = api.optimize(source, fused, replace(options, dry_run=False)).report
        _require_agreement(module, args, kwargs or {}, fused, options.providers)
        if options.dry_run:
            return api.Result(None, replace(_told(report, module, path), written=None))
        with model_io.copy_unchanged(model_io.read(fused), path) as staged:
            written = staged.commit()
    return api.Result(written, replace(_told(report, module, path), written=str(written)))


def _told(report: Report, module: torch.nn.Module, path: Path) -> Report:
    """A report of the module, where the one of the run is of a temporary file."""
    name = type(module).__name__
    call = f"normfuse.torch.export({name}, …, {str(path)!r})"
    repeat = None if report.repeat is None else replace(report.repeat, call=call)
    return replace(report, model=name, repeat=repeat, data_files=(), depends_on=())


def _require_agreement(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    path: Path,
    providers: Sequence[str],
) -> None:
    """Compare the outputs of a model file on each provider with the module's, one by one."""
    truth = _outputs(module, args, kwargs)
    values = [_array(tensor) for tensor in _tensors((args, kwargs))]
    results = [_computed(_session(path, provider), values) for provider in providers]
    if any(len(found) != len(truth) for found in results):
        raise ParityError(f"the export has {len(results[0])} outputs, and the module has {len(truth)}")
    floors = [_noise(module, args, kwargs, truth, seed) for seed in range(NUDGES)]
    for found in results:
        for k, ((name, value), expected) in enumerate(zip(found.items(), truth, strict=True)):
            bound = TIMES_NOISE * max(floor[k] for floor in floors) + ROUNDOFFS * roundoff(expected.dtype)
            _require(name, distance(expected, value), bound)


def _computed(session: Session, values: Sequence[Array]) -> dict[str, Any]:
    """The outputs of a model for the tensors that the module was called with."""
    names = [value.name for value in session.session.get_inputs()]
    if len(values) != len(names):
        raise CannotVerifyError(
            f"the export has {len(names)} inputs, and the module was called with {len(values)} tensors",
            hint="give every tensor in args, or Options(verify=False)",
        )
    try:
        return session.run(dict(zip(names, values, strict=True)))
    except RuntimeRefusalError as error:
        raise CannotVerifyError(
            f"the exported model does not run on the module's own inputs: {error}"
        ) from error


def _session(path: Path, provider: str) -> Session:
    try:
        return Session(path, Settings(provider), "deployed")
    except RuntimeRefusalError as error:
        raise CannotVerifyError(f"the exported model does not load on {provider}: {error}") from error


def _require(name: str, off: Distance, bound: float) -> None:
    if off.mismatch or off.relative > bound:
        what = off.mismatch or f"off by {off.relative:.1e} relative, allowed {bound:.1e}"
        raise ParityError(
            f"output {name!r} is not what the module computes: {what}",
            hint="the export itself may be at fault: torch.onnx.export(…, verify=True) tells",
        )


def _noise(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], truth: Sequence[Array], seed: int
) -> list[float]:
    """How far each output moves when all parameters and float inputs move by one ulp."""
    generator = torch.Generator().manual_seed(seed)
    moved = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in (*moved.parameters(), *moved.buffers()):
            tensor.copy_(_nudged(tensor, generator))
    leaves, shape = pytree.tree_flatten((args, kwargs))
    nudged_args, nudged_kwargs = pytree.tree_unflatten(
        [_nudged(leaf, generator) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], shape
    )
    outputs = _outputs(moved, nudged_args, nudged_kwargs)
    return [_move(before, after) for before, after in zip(truth, outputs, strict=True)]


def _move(before: Array, after: Array) -> float:
    off = distance(before, after)
    return 0.0 if off.mismatch or not is_float(before) else off.relative


def _nudged(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    sign = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor) * 2 - 1
    return tensor * (1 + sign * torch.finfo(tensor.dtype).eps)


def _outputs(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Array]:
    with torch.no_grad():
        return [_array(tensor) for tensor in _tensors(module(*args, **kwargs))]


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _array(tensor: torch.Tensor) -> Array:
    """The tensor in numpy, bfloat16 as ml_dtypes has it."""
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        words: Array = plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return words
    array: Array = plain.numpy()
    return array
