"""The command line: what it asks of the API, what it prints, and how it ends."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from normfuse.cli import run
from normfuse.errors import CannotVerifyError, InputError, NormfuseError, ParityError
from normfuse.options import Options
from normfuse.parity.verdict import ModelVerdict
from normfuse.report.record import Report, Site

FUSED = Site("LayerNorm", "fused", "ln1", "y")
LEFT = Site("RMSNorm", "left", "rms1", "z", reason="eps-outside-sqrt")


def report(*sites: Site) -> Report:
    return Report("m.onnx", "ort-cpu", ("cpu",), sites, 9, 3, 17, 17, True, "m.fused.onnx")


@dataclass
class Api:
    """Stands for normfuse.api: records what it was asked, and answers or fails as it is told."""

    answer: Report = field(default_factory=lambda: report(FUSED, LEFT))
    verdicts: tuple[str, ...] = ("equal",)
    error: NormfuseError | BaseException | None = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def optimize(self, model: Path, out: Path | None, options: Options, progress: Any) -> SimpleNamespace:
        self._called("optimize", model, out, options)
        return SimpleNamespace(model=out, report=self.answer)

    def inspect(self, model: Path, options: Options) -> Report:
        self._called("inspect", model, options)
        return self.answer

    def verify(self, a: Path, b: Path, options: Options) -> list[ModelVerdict]:
        self._called("verify", a, b, options)
        return [ModelVerdict(result, "cpu") for result in self.verdicts]  # type: ignore[arg-type]

    def _called(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    import normfuse

    fake = Api()
    module = ModuleType("normfuse.api")
    for name in ("optimize", "inspect", "verify"):
        setattr(module, name, getattr(fake, name))
    monkeypatch.setitem(sys.modules, "normfuse.api", module)
    monkeypatch.setattr(normfuse, "api", module, raising=False)
    return fake


# -- what it asks for -----------------------------------------------------------------------------------


def test_a_model_alone_is_fused_with_the_defaults(api: Api) -> None:
    assert run(["m.onnx"]) == 0
    assert api.calls == [("optimize", Path("m.onnx"), None, Options())]


def test_every_option_reaches_the_api(api: Api) -> None:
    line = (
        "m.onnx -o out.onnx --target onnx --ep cuda --ep cpu --dim S=7 --dim B=2 --skip LayerNorm --skip n/1"
    )
    assert run([*line.split(), "--seed", "3", "--no-verify", "--dry-run", "--max-opset", "17"]) == 0
    options = Options(
        target="onnx",
        max_opset=17,
        providers=("cuda", "cpu"),
        dims={"S": 7, "B": 2},
        verify=False,
        skip=("LayerNorm", "n/1"),
        seed=3,
        dry_run=True,
    )
    assert api.calls == [("optimize", Path("m.onnx"), Path("out.onnx"), options)]


def test_options_may_come_before_the_model(api: Api) -> None:
    assert run(["--quiet", "m.onnx"]) == 0
    assert api.calls[0][1] == Path("m.onnx")


def test_a_model_called_like_a_command_has_a_path(api: Api) -> None:
    assert run(["./inspect"]) == 0
    assert api.calls[0][:2] == ("optimize", Path("inspect"))


def test_commands_reach_the_api(api: Api) -> None:
    assert run(["inspect", "m.onnx", "--target", "onnx", "--max-opset", "18"]) == 0
    assert run(["verify", "a.onnx", "b.onnx", "--dim", "S=7", "--seed", "5"]) == 0
    assert api.calls == [
        ("inspect", Path("m.onnx"), Options(target="onnx", max_opset=18)),
        ("verify", Path("a.onnx"), Path("b.onnx"), Options(dims={"S": 7}, seed=5)),
    ]


# -- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ParityError("it differs"), 1),
        (InputError("m.onnx: no graph"), 3),
        (CannotVerifyError("no such provider", hint="install it"), 4),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    api: Api, capsys: pytest.CaptureFixture[str], error: NormfuseError, code: int
) -> None:
    api.error = error
    for command in (["m.onnx"], ["inspect", "m.onnx"], ["verify", "a", "b"]):
        assert run(command) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err == f"error: {error}\n" + ("hint: install it\n" if code == 4 else "")


def test_an_interrupt_is_exit_130_without_a_traceback(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.error = KeyboardInterrupt()
    assert run(["m.onnx"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_control_characters_in_an_error_are_written_out(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.error = InputError("node 'a\x1b[2J\nb'", hint="\x07")
    assert run(["m.onnx"]) == 3
    assert capsys.readouterr().err == "error: node 'a\\x1b[2J\\nb'\nhint: \\x07\n"


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("m.onnx --target ortcpu", "unknown --target 'ortcpu'", "did you mean 'ort-cpu'?"),
        ("m.onnx --target ORT-CUDA", "unknown --target 'ORT-CUDA'", "did you mean 'ort-cuda'?"),
        ("m.onnx --target x", "unknown --target 'x'", "known: onnx, ort, ort-cpu, ort-cuda"),
        ("m.onnx --ep cud", "unknown --ep 'cud'", "did you mean 'cuda'?"),
        ("m.onnx --dim S", "--dim 'S' is not NAME=SIZE", "--dim batch=2"),
        ("m.onnx --dim S=-1", "--dim 'S=-1' is not NAME=SIZE", "--dim batch=2"),
        ("m.onnx --targt ort", "--targt", "--target"),
        ("m.onnx --seed many", "--seed", "--help"),
        ("m.onnx --seed -1", "--seed", "--help"),
        ("m.onnx --check -o out.onnx", "--check", ""),
        ("m.onnx --report r.txt", "must end in .json, .html, .xml or .sarif", ""),
        ("m.onnx --report no/such/r.json", "there is no folder", ""),
        ("inspect", "MODEL", "--help"),
        ("verify a.onnx", "B", "--help"),
        ("verify a.onnx b.onnx --target ort", "--target", ""),
        ("--quiet", "MODEL", "--help"),
    ],
)
def test_wrong_usage_is_exit_2_and_says_what_was_meant(
    api: Api, capsys: pytest.CaptureFixture[str], line: str, message: str, hint: str
) -> None:
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    first, *rest = err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert hint in "".join(rest)
    assert (out, api.calls) == ("", [])


def test_a_rollback_is_exit_0_and_with_strict_1(api: Api) -> None:
    api.answer = report(FUSED, Site("LayerNorm", "rolled-back", "ln2", "z", reason="rolled-back"))
    assert run(["m.onnx", "--quiet"]) == 0
    assert run(["m.onnx", "--quiet", "--strict"]) == 1


@pytest.mark.parametrize(("sites", "code"), [((FUSED,), 5), ((LEFT,), 0), ((), 0)])
def test_check_writes_nothing_and_exits_5_when_there_is_something_to_fuse(
    api: Api, capsys: pytest.CaptureFixture[str], sites: tuple[Site, ...], code: int
) -> None:
    api.answer = report(*sites)
    assert run(["m.onnx", "--check"]) == code
    assert [call[0] for call in api.calls] == ["inspect"]
    assert ("1 would be fused" in capsys.readouterr().out) is (code == 5)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(("equal",), 0), (("failed",), 1), (("inconclusive",), 4), (("not-run",), 4), (("equal", "failed"), 1)],
)
def test_verify_exits_by_what_it_found(api: Api, verdicts: tuple[str, ...], code: int) -> None:
    api.verdicts = verdicts
    assert run(["verify", "a.onnx", "b.onnx"]) == code


# -- what it prints -------------------------------------------------------------------------------------


def test_a_summary_is_printed_plain_when_piped(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    run(["m.onnx"])
    out, err = capsys.readouterr()
    assert "1 fused" in out
    assert "eps-outside-sqrt" in out
    assert "\x1b" not in out
    assert err == ""


def test_quiet_prints_nothing(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["m.onnx"], ["m.onnx", "--check"], ["verify", "a", "b"]):
        run([*command, "--quiet"])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("failed", [False, True])
def test_a_report_is_written_also_when_parity_failed(api: Api, tmp_path: Path, failed: bool) -> None:
    if failed:
        api.error = ParityError("it differs", report=api.answer)
    path = tmp_path / "r.json"
    assert run(["m.onnx", "--report", str(path)]) == (1 if failed else 0)
    assert [site["anchor"] for site in json.loads(path.read_text())["sites"]] == ["ln1", "rms1"]


def test_several_reports_are_written_in_one_run(api: Api, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("r.json", "r.xml", "r.sarif")]
    assert run(["m.onnx", "-q", *(word for path in paths for word in ("--report", str(path)))]) == 0
    assert all(path.stat().st_size for path in paths)
    assert not api.calls[0][3].illustrated


@pytest.mark.parametrize("command", [[], ["--check"]])
def test_a_run_that_ends_early_says_so_in_its_reports(api: Api, tmp_path: Path, command: list[str]) -> None:
    api.error = InputError("m.onnx is no ONNX model", "give another")
    path = tmp_path / "r.xml"
    path.write_text("of an older run")
    assert run(["m.onnx", *command, "--report", str(path), "--report", str(tmp_path / "r.json")]) == 3
    assert 'errors="1"' in path.read_text()
    (model,) = json.loads((tmp_path / "r.json").read_text())["models"]
    assert (model["report"], model["error"], model["exit_code"]) == (None, "m.onnx is no ONNX model", 3)


@pytest.mark.parametrize("command", [[], ["--check"]])
def test_a_report_for_people_is_illustrated(api: Api, tmp_path: Path, command: list[str]) -> None:
    run(["m.onnx", "-q", *command, "--report", str(tmp_path / "r.html")])
    assert api.calls[0][-1].illustrated
    assert (tmp_path / "r.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_inspect_lists_every_candidate_or_prints_json(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    run(["inspect", "m.onnx"])
    out = capsys.readouterr().out
    assert "ln1" in out
    assert "rms1" in out
    run(["inspect", "m.onnx", "--json"])
    assert json.loads(capsys.readouterr().out)["sites"][1]["reason"] == "eps-outside-sqrt"


@pytest.mark.parametrize("command", [[], ["--help"], ["-h"], ["inspect", "--help"], ["verify", "-h"]])
def test_help_says_how_to_use_it(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert run(command) == 0
    out = capsys.readouterr().out
    assert "Usage: normfuse" in out
    if len(command) < 2:
        assert "normfuse inspect MODEL" in out
        assert "normfuse verify A B" in out


def test_the_version_names_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("normfuse ")
    assert "onnxruntime" in out


def test_help_is_there_at_once() -> None:
    """Nothing heavy is imported for it."""
    script = (
        "import sys; from normfuse.cli import run; run(['--help']);"
        "print(sorted({'onnx', 'onnx_ir', 'numpy', 'onnxruntime', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# -- for real -------------------------------------------------------------------------------------------

NORM = """<ir_version: 8, opset_import: ["" : 17]> g (float[B, 8] x) => (float[B, 8] y)
<float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}, float two = {2}, float eps = {0.00001}> {
  m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  q = Pow(d, two)  v = ReduceMean <axes = [-1]> (q)
  e = Add(v, eps)  r = Sqrt(e)  n = Div(d, r)  y = Mul(n, s)
}"""


@pytest.fixture
def norm(tmp_path: Path) -> Path:
    path = tmp_path / "norm.onnx"
    onnx.save(onnx.parser.parse_model(NORM), path)
    return path


NOT_FOR_REWRITING = (
    *("onnxruntime", "onnxscript", "rich", "multiprocessing", "numpy.random"),
    *("normfuse.bench", "normfuse.parity.check", "normfuse.parity.model", "normfuse.report.summary"),
)


def test_a_run_that_only_rewrites_loads_nothing_for_running_or_printing(tmp_path: Path) -> None:
    """Not even where the opset has to be raised."""
    source, out = Path(__file__).parents[1] / "models" / "encoder.onnx", tmp_path / "out.onnx"
    words = [str(source), "--no-verify", "--quiet", "-o", str(out)]
    script = (
        f"import sys; from normfuse.cli import run; run({words!r});"
        f"print(sorted(set({NOT_FOR_REWRITING!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]"]
    before, after = (onnx.load(path).opset_import[0].version for path in (source, out))
    assert before < after


@pytest.mark.parametrize(
    ("words", "collecting"),
    [
        (["--dry-run"], True),
        (["--no-verify"], False),
        (["--no-verify", "again.onnx"], True),
        (["--no-verify", "--tune"], True),
    ],
)
def test_garbage_is_looked_for_unless_one_model_is_only_rewritten(
    norm: Path, words: list[str], collecting: bool
) -> None:
    """A graph that is only rewritten is live to the end; those of several models are not."""
    shutil.copy(norm, norm.with_name("again.onnx"))
    script = """if True:
        import gc
        from normfuse import api
        from normfuse.cli import main
        from normfuse.errors import UsageError
        def optimize(*_, **__):
            print(gc.isenabled())
            raise UsageError("enough")
        api.optimize = optimize
        main()
    """
    line = [sys.executable, "-c", script, "norm.onnx", *words]
    done = subprocess.run(line, capture_output=True, text=True, cwd=norm.parent)
    assert {*done.stdout.split()} & {"True", "False"} == {str(collecting)}, done.stderr


def test_a_run_within_another_program_leaves_its_garbage_collection_alone(norm: Path) -> None:
    frozen = gc.get_freeze_count()
    assert run([str(norm), "--no-verify", "--quiet"]) == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_a_model_is_fused_and_then_there_is_nothing_left_to_do(
    norm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(norm), "--check"]) == 5
    assert run([str(norm)]) == 0
    fused = norm.with_name("norm.fused.onnx")
    assert [node.op_type for node in onnx.load(fused).graph.node] == ["LayerNormalization"]
    assert "verified" in capsys.readouterr().out
    assert run([str(fused), "--check"]) == 0
    assert run([str(fused), "-o", str(norm.with_name("again.onnx"))]) == 0
    assert norm.with_name("again.onnx").read_bytes() == fused.read_bytes()
    assert run(["verify", str(norm), str(fused)]) == 0


def test_a_dry_run_writes_nothing(norm: Path) -> None:
    assert run([str(norm), "--dry-run"]) == 0
    assert list(norm.parent.iterdir()) == [norm]


def test_a_provider_that_is_not_active_is_exit_4(norm: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("it is active here")
    assert run([str(norm), "--ep", "cuda"]) == 4
    assert list(norm.parent.iterdir()) == [norm]


def test_a_broken_model_is_exit_3_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"not a model")
    for command in ([str(path)], ["inspect", str(path)], ["verify", str(path), str(path)]):
        assert run(command) == 3
        assert capsys.readouterr().err.startswith(f"error: {path}: not an ONNX model")


def test_an_unknown_node_to_skip_is_exit_2(norm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(norm), "--skip", "LayrNorm"]) == 2
    assert "LayerNorm" in capsys.readouterr().err
    assert run([str(norm), "--skip", "LayerNorm", "--no-verify"]) == 0
    assert len(onnx.load(norm.with_name("norm.fused.onnx")).graph.node) == 8


# -- what is verified on --------------------------------------------------------------------------------


def test_inputs_of_the_user_reach_the_api(api: Api) -> None:
    assert run(["m.onnx", "--inputs", "in.npz"]) == 0
    assert run(["verify", "a.onnx", "b.onnx", "--input", "x=random:0:1", "--input", "a=b=ones"]) == 0
    assert api.calls[0][3] == Options(inputs=Path("in.npz"))
    assert api.calls[1][3] == Options(given={"x": "random:0:1", "a=b": "ones"})


@pytest.mark.parametrize("line", ["--input x", "--input =ones", "--input x=ones --inputs in.npz"])
def test_inputs_that_make_no_sense_are_refused(
    api: Api, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert run(["m.onnx", *line.split()]) == 2
    assert "--input" in capsys.readouterr().err
    assert api.calls == []


def _layer_norm(folder: Path) -> Path:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[B, 8] x) => (float[B, 8] y) <float e = {0.00001}> {'
        "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=[-1]>(s)"
        "p = Add(v, e) r = Sqrt(p) y = Div(d, r) }"
    )
    onnx.save(proto, folder / "ln.onnx")
    return folder / "ln.onnx"


def test_a_model_is_verified_on_the_inputs_of_the_user(tmp_path: Path) -> None:
    model, inputs, data = _layer_norm(tmp_path), tmp_path / "x.npy", tmp_path / "r.json"
    np.save(inputs, np.arange(24, dtype=np.float32).reshape(3, 8))
    assert run([str(model), "--inputs", str(inputs), "--report", str(data), "-q"]) == 0
    assert json.loads(data.read_text())["parity"]["inputs"] == ["given inputs 1"]
    assert run(["verify", str(model), str(model), "--input", f"x={inputs}", "-q"]) == 0
    assert run(["verify", str(model), str(model), "--input", "x=nothing", "-q"]) == 2


def test_nothing_is_written_on_empty_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = _layer_norm(tmp_path)
    assert run([str(model), "--dim", "B=0"]) == 4
    assert "'y': it is empty" in capsys.readouterr().err
    assert not (tmp_path / "ln.fused.onnx").exists()


def _process(*arguments: str, stdout: Any) -> subprocess.CompletedProcess[bytes]:
    line = "from normfuse.cli import main; main()"
    return subprocess.run([sys.executable, "-c", line, *arguments], stdout=stdout, stderr=subprocess.PIPE)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("more", [("--dry-run",), ("-o", "-")])
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path: Path, more: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = _process(str(_layer_norm(tmp_path)), *more, stdout=full)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"standard output: No space left" in done.stderr


@pytest.mark.parametrize(("more", "code"), [(("--check",), 5), (("--dry-run",), 0), (("-o", "-"), 0)])
def test_a_closed_pipe_keeps_the_exit_code(tmp_path: Path, more: tuple[str, ...], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = _process(str(_layer_norm(tmp_path)), *more, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (code, b"")
