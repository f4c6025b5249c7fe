"""A second real provider, without a GPU: OpenVINO, in an environment of its own with onnxruntime 1.24.

What CUDA takes on a machine that has it, this takes everywhere. That onnxruntime's own LayerNormalization on
the CPU loses digits at large means, which onnxruntime 1.27 repaired: so it also shows how that is told.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from environments import CannotInstallError, environment, run
from parity_models import stack
from spelled_families import family

import normfuse

PACKAGE = "onnxruntime-openvino==1.24.1"
MODELS = Path(__file__).parents[2] / "models"
# Every model of models/ in which something is fused or folded, with the kinds.
FAMILIES = {
    "layernorm_pow_div": {"LayerNorm"},
    "layernorm_scale_and_shift": {"LayerNorm"},
    "channels_first": {"LayerNorm"},
    "eps_outside": {"LayerNorm"},
    "modulated_norm": {"LayerNorm"},
    "rmsnorm": {"RMSNorm"},
    "per_head_norm": {"RMSNorm"},
    "group_norm": {"GroupNorm"},
    "instance_norm": {"InstanceNorm"},
    "conv_bn": {"BatchNorm"},
    "gemm_bn": {"BatchNorm"},
    "convnet": {"BatchNorm"},
    "encoder": {"LayerNorm"},
}
ONE_OF_EACH = ("layernorm_pow_div", "channels_first", "rmsnorm", "group_norm", "instance_norm", "conv_bn")
# What OpenVINO does not compile, by model, and what it says.
REFUSED = {"eps_outside": "LayerNormalization expects 1 output"}
SABOTAGED = """
import sys
from pathlib import Path
from parity_models import stack
from normfuse.parity.check import check
from normfuse.parity.settings import Settings
pair = stack(4, broken=1, how=sys.argv[2])
parity = check(*pair.save(Path(sys.argv[1])), pair.sites, Settings(provider="openvino"))
print(parity.model.result, *parity.guilty)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return environment(PACKAGE)
    except CannotInstallError as error:
        pytest.skip(f"{PACKAGE} cannot be installed here: {error}")


def built(name: str, folder: Path) -> Path:
    """One model of models/build.py."""
    sys.path.insert(0, str(MODELS))
    try:
        build = importlib.import_module("build")
    finally:
        sys.path.remove(str(MODELS))
    path = folder / f"{name}.onnx"
    onnx.save(build.MODELS[name](), path)
    return path


def fused(python: Path, model: Path, *options: str) -> dict[str, Any]:
    """The report of one run, which must have been proven."""
    done = run(python, model, *options, "--report", model.with_name("r.json"))
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(model.with_name("r.json").read_text())
    assert all(v["result"] == "equal" for v in report["verdicts"])
    return report


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_is_fused_and_proven_on_openvino(python: Path, tmp_path: Path, name: str) -> None:
    model = built(name, tmp_path)
    unproven = normfuse.optimize(
        model, out=tmp_path / "u.onnx", options=normfuse.Options(target="ort", verify=False)
    )
    kinds = {s.kind for s in unproven.report.sites if s.status in ("fused", "folded")}
    assert FAMILIES[name] <= kinds

    report = fused(python, model, "--ep", "openvino")

    if name in REFUSED:
        (site,) = report["sites"]
        assert site["status"] == "rolled-back"
        assert "not the rewrite's fault: the CPU runs it, but OpenVINO" in site["parity"]["detail"]
        assert REFUSED[name] in site["parity"]["detail"]
        return
    assert {s["kind"] for s in report["sites"] if s["status"] in ("fused", "folded")} == kinds
    assert not [s for s in report["sites"] if s["status"] == "rolled-back"]
    placement = report["verdicts"][0]["placement"]
    assert placement["provider"] == "OpenVINOExecutionProvider"
    assert placement["there"] == placement["fused"]
    assert placement["elsewhere"] == []

    done = run(python, "verify", model, model.with_name(f"{name}.fused.onnx"), "--ep", "OpenVINO")
    assert done.returncode == 0, done.stdout
    assert "agree         on openvino" in done.stdout


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_each_family_is_proven_on_both_providers(python: Path, tmp_path: Path, name: str) -> None:
    report = fused(python, built(name, tmp_path), "--ep", "cpu", "--ep", "openvino")

    assert report["target"] == "ort"
    left = [s for s in report["sites"] if s["status"] == "rolled-back"]
    assert {s["kind"] for s in left} <= {"LayerNorm"}
    for site in left:  # the CPU kernel of this onnxruntime, and nothing else
        assert site["parity"]["detail"].startswith("on cpu: offset")
        assert "not the rewrite's fault" in site["parity"]["detail"]
        assert "onnxruntime 1.27 and later compute it right" in site["parity"]["detail"]
    if len(left) < len(report["sites"]):
        assert [v["provider"] for v in report["verdicts"]] == ["cpu", "openvino"]


@pytest.mark.parametrize("name", ["layer_norm", "affine"])
def test_half_precision_is_proven_and_said_to_be_float32(python: Path, tmp_path: Path, name: str) -> None:
    onnx.save(family(name, "float16"), tmp_path / "model.onnx")
    report = fused(python, tmp_path / "model.onnx", "--ep", "openvino")
    assert {site["status"] for site in report["sites"]} <= {"fused", "folded"}
    notes = report["parity"]["notes"]
    assert any("half precision on OpenVINO is computed in float32" in note for note in notes)


@pytest.mark.parametrize(
    ("how", "said"), [("", "equal"), ("eps x10", "equal y1"), ("gamma shifted", "failed y1")]
)
def test_a_sabotage_is_caught_on_openvino(python: Path, tmp_path: Path, how: str, said: str) -> None:
    done = run(python, tmp_path, how, code=SABOTAGED)
    assert done.stdout.strip() == said, done.stderr


def test_the_first_difference_is_located_on_openvino(python: Path, tmp_path: Path) -> None:
    before, after = stack(5, broken=3, how="gamma shifted").save(tmp_path)
    done = run(python, "verify", before, after, "--ep", "openvino", "--locate")
    assert done.returncode == 1
    assert "differ from   'y3' on, on openvino" in done.stdout


def test_a_provider_that_this_runtime_lacks_is_an_error(python: Path, tmp_path: Path) -> None:
    before, after = stack(1).save(tmp_path)
    done = run(python, "verify", before, after, "--ep", "cuda")
    assert done.returncode == 4
    assert "'cuda' is not active" in done.stderr
    assert "openvino, cpu" in done.stderr
