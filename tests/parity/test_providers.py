"""Execution providers: what they are called, whether they are active, and what they must be told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from parity_models import floats, model, save, stack

from normfuse.cli import run
from normfuse.errors import CannotVerifyError, UsageError
from normfuse.options import Options
from normfuse.parity import providers
from normfuse.parity.check import check, verify
from normfuse.parity.providers import chain, check_active, precision_note, provider_name, require, short_name
from normfuse.parity.settings import Settings

# Every onnxruntime from PyPI has it; it runs no ordinary operator, so everything falls to the CPU.
AZURE = "AzureExecutionProvider"


@pytest.mark.parametrize("name", ["cpu", "CPU", "CPUExecutionProvider"])
def test_providers_go_by_short_names(name: str) -> None:
    assert provider_name(name) == "CPUExecutionProvider"
    assert short_name(name) == "cpu"


@pytest.mark.parametrize("name", ["OpenVINO", "openvinoexecutionprovider", "OpenVINOExecutionProvider"])
def test_a_known_provider_has_one_name_whether_it_is_here_or_not(name: str) -> None:
    assert short_name(name) == "openvino"


def test_an_unknown_provider_gets_the_closest_and_what_is_here() -> None:
    with pytest.raises(UsageError, match="unknown --ep 'openvion'") as caught:
        short_name("openvion")
    assert caught.value.hint.startswith("did you mean 'openvino'? this onnxruntime")
    assert "cpu" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        short_name("abacus")
    assert "offers" in caught.value.hint


def test_a_provider_that_is_not_in_the_runtime_is_never_replaced_silently() -> None:
    with pytest.raises(CannotVerifyError, match=r"'tensorrt' is not active: this onnxruntime .* has .*cpu"):
        provider_name("tensorrt")


@pytest.mark.parametrize(
    ("provider", "cure"), [("openvino", "pip install onnxruntime-openvino"), ("cuda", "NVIDIA GPU")]
)
def test_the_message_says_what_to_install(provider: str, cure: str) -> None:
    if provider in (name.removesuffix(providers.SUFFIX).lower() for name in _available()):
        pytest.skip("it is active here")
    with pytest.raises(CannotVerifyError) as caught:
        require([provider])
    assert cure in caught.value.hint


def _available() -> list[str]:
    import onnxruntime

    found: list[str] = onnxruntime.get_available_providers()
    return found


def session_of(names: list[str], options: dict[str, Any] | None = None) -> Any:
    return SimpleNamespace(get_providers=lambda: names, get_provider_options=lambda: options or {})


def test_a_session_that_fell_back_is_an_error() -> None:
    with pytest.raises(CannotVerifyError, match="'cuda' could not be started") as caught:
        check_active(session_of(["CPUExecutionProvider"]), "CUDAExecutionProvider")
    assert "driver" in caught.value.hint


def test_tf32_is_off_on_cuda_and_that_is_checked() -> None:
    (name, options), fallback = chain("CUDAExecutionProvider")
    assert (name, options["use_tf32"], fallback) == ("CUDAExecutionProvider", "0", "CPUExecutionProvider")
    check_active(session_of([name], {name: {"use_tf32": "0"}}), name)
    with pytest.raises(CannotVerifyError, match="use_tf32"):
        check_active(session_of([name], {name: {"use_tf32": "1"}}), name)


def test_openvino_is_told_to_compute_in_float32() -> None:
    (_, options), _ = chain("OpenVINOExecutionProvider")
    assert json.loads(options["load_config"]) == {"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}


def test_what_cannot_be_told_is_said() -> None:
    assert "TF32 is off for this comparison" in precision_note("CUDAExecutionProvider")
    assert "precision of its own choice" in precision_note("CoreMLExecutionProvider")
    assert precision_note("CPUExecutionProvider") == ""


@pytest.mark.parametrize("command", ["fuse", "verify"])
def test_an_inactive_provider_is_exit_4_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    missing = str(tmp_path / "missing.onnx")
    line = [missing] if command == "fuse" else ["verify", missing, missing]
    assert run([*line, "--ep", "qnn"]) == 4
    assert "'qnn' is not active" in capsys.readouterr().err


def test_inspect_and_no_verify_run_nothing_so_a_provider_need_not_be_here(tmp_path: Path) -> None:
    before, _ = stack(1).save(tmp_path)
    assert run(["inspect", str(before), "--ep", "TensorRT"]) == 0
    assert run([str(before), "--ep", "cuda", "--no-verify", "--quiet"]) == 0


def test_other_providers_get_the_target_ort(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, _ = stack(1).save(tmp_path)
    assert run(["inspect", str(before), "--ep", "openvino", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["target"], report["providers"]) == ("ort", ["openvino"])


def test_full_names_are_one_provider_with_short_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = stack(1).save(tmp_path)
    line = ["verify", str(before), str(after), "--ep", "CPU", "--ep", "CPUExecutionProvider", "--json"]
    assert run(line) == 0
    assert [v["provider"] for v in json.loads(capsys.readouterr().out)["verdicts"]] == ["cpu"]


def test_the_library_takes_full_names(tmp_path: Path) -> None:
    import normfuse

    before, _ = stack(1).save(tmp_path)
    report = normfuse.optimize(
        before, out=tmp_path / "o.onnx", options=Options(providers=("CPUExecutionProvider",))
    ).report
    assert (report.providers, report.target) == (("cpu",), "ort-cpu")
    assert [v.provider for v in report.verdicts] == ["cpu"]


@pytest.mark.skipif(AZURE not in _available(), reason="this onnxruntime has no second provider")
def test_fused_nodes_that_fell_to_the_cpu_are_named(tmp_path: Path) -> None:
    pair = stack(2)
    parity = check(*pair.save(tmp_path), pair.sites, Settings(provider="azure"))
    assert parity.model.result == "equal"
    placement = parity.model.placement
    assert placement is not None
    assert (placement.provider, placement.fused, placement.there) == (AZURE, 2, 0)
    assert placement.elsewhere == (
        "y0 (LayerNormalization) on CPUExecutionProvider",
        "y1 (SimplifiedLayerNormalization) on CPUExecutionProvider",
    )
    (note,) = [note for note in parity.model.notes if "fused nodes" in note]
    assert note.startswith(f"0 of 2 fused nodes ran on {AZURE}; it left to another provider: y0 (Layer")


def test_on_the_cpu_all_fused_nodes_are_where_they_were_asked_to_be(tmp_path: Path) -> None:
    before, after = stack(3).save(tmp_path)
    placement = verify(before, after, Settings()).placement
    assert placement is not None
    assert (placement.fused, placement.there, placement.elsewhere) == (3, 3, ())


def test_half_precision_on_the_cpu_is_said_to_be_float32(tmp_path: Path) -> None:
    path = save(model("float16[B, 4] x", "float16[B, 4] y", "y = Neg(x)"), tmp_path / "m.onnx")
    assert "half precision on CPU is computed in float32" in verify(path, path, Settings()).notes[0]
    plain = save(model("float[B, 4] x", "float[B, 4] y", "y = Add(x, g)", floats({"g": 1})), tmp_path / "p")
    assert verify(plain, plain, Settings()).notes == ()
