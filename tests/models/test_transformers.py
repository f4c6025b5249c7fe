"""Transformers as torch exports them: every norm module ends as one fused node, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from exports import EXPORTS, SPELLED_OUT, Export
from graphs import fused_norms, interface, residue, run

import normfuse

CHEAP = Export("bert", "torchscript", 13)
ExportFile = Callable[[Export], Path]


def each_export() -> list[object]:
    """All twenty; all but one are slow, as torch and transformers take long to load and to trace."""
    marks = {CHEAP: ()}
    return [pytest.param(e, id=e.name, marks=marks.get(e, (pytest.mark.slow,))) for e in EXPORTS]


@pytest.mark.parametrize("which", each_export())
def test_every_norm_module_ends_as_one_fused_node(
    which: Export, export_file: ExportFile, tmp_path: Path
) -> None:
    source, out = export_file(which), tmp_path / "out.onnx"

    report = normfuse.optimize(source, out=out).report

    assert fused_norms(out) == {"LayerNorm": 0, "RMSNorm": 0} | {which.kind: which.norms}
    assert residue(out) == []
    fused = [site for site in report.sites if site.kind == which.kind and site.status == "fused"]
    assert len(fused) == (which.norms if which.spelled_out else 0)
    assert not [
        site for site in report.sites if site.status in ("left", "rolled-back") and "Norm" in site.kind
    ]
    assert report.parity is not None
    assert report.parity.agrees, report.parity.detail
    assert interface(out) == interface(source)


@pytest.mark.parametrize("which", each_export())
def test_the_result_computes_what_the_torch_module_does(
    which: Export, export_file: ExportFile, tmp_path: Path
) -> None:
    import torch
    import torch_models

    out = tmp_path / "out.onnx"
    normfuse.optimize(export_file(which), out=out)
    family = torch_models.FAMILIES[which.family]
    model, inputs = family.build(), family.inputs()
    # onnxruntime's RotaryEmbedding does not broadcast, so torch's own Llama at opset 23 runs at batch 1 only
    inputs = {name: tensor[:1] for name, tensor in inputs.items()}

    with torch.no_grad():
        expected = model(*inputs.values()).numpy()
    (result,) = run(out, {name: tensor.numpy() for name, tensor in inputs.items()})

    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("which", [pytest.param(e, id=e.name) for e in EXPORTS])
def test_the_catalogue_of_exports_is_true(which: Export, export_file: ExportFile) -> None:
    import torch_models

    model = torch_models.FAMILIES[which.family].build()
    path = export_file(which)

    assert len(torch_models.norm_modules(model)) == which.norms
    assert fused_norms(path)[which.kind] == (0 if which.spelled_out else which.norms)
    assert bool(residue(path)) == ((which.family, which.exporter, which.opset) in SPELLED_OUT)
    assert all(value.type.tensor_type.shape.dim[0].dim_param for value in onnx.load(path).graph.input)


@pytest.mark.slow
@pytest.mark.parametrize("which", [pytest.param(e, id=e.name) for e in EXPORTS if e.spelled_out])
def test_a_second_run_finds_nothing_to_do(which: Export, export_file: ExportFile, tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"

    normfuse.optimize(export_file(which), out=first)
    report = normfuse.optimize(first, out=second).report

    assert not report.changed
    assert second.read_bytes() == first.read_bytes()
