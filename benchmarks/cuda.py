"""CUDA in one command: an environment with onnxruntime-gpu, the tests marked cuda, and the figures for docs/.

    python benchmarks/cuda.py                      needs an NVIDIA GPU with its driver; downloads 2 GB
    python benchmarks/cuda.py --here               in the environment that it is run in
    python benchmarks/cuda.py --here --ep cpu      the same table for another provider

One model of each family in each float type is fused for the provider, proven there, and timed against the
original. Where CUDA does not start, it says why and ends with 4.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "parity"
NOT_VERIFIED = 4
DIMS = {"B": 8, "S": 512, "N": 4}


def main() -> int:
    """Make the environment and go on in it, or print the figures of this one."""
    options = _options()
    if options.here:
        return _figures(options)
    driver = _has_driver()
    python = _environment(Path(options.folder), driver)
    if not driver:
        print("this machine has no NVIDIA driver (libcuda.so.1 cannot be loaded), so CUDA cannot start")
    tests = subprocess.run(
        [str(python), "-m", "pytest", "-m", "cuda", "-q", "-rs", str(TESTS / "test_cuda.py")],
        cwd=ROOT,
        check=False,
    )
    table = subprocess.run([str(python), __file__, "--here", "--seconds", str(options.seconds)], check=False)
    return tests.returncode or table.returncode


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--here", action="store_true", help="use this environment")
    parser.add_argument("--ep", default="cuda", help="execution provider")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring, for each model")
    parser.add_argument("--small", action="store_true", help="small models, to try the script")
    parser.add_argument(
        "--folder", default=str(Path(tempfile.gettempdir()) / "normfuse-cuda"), help="of the environment"
    )
    return parser.parse_args()


def _has_driver() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def _environment(folder: Path, driver: bool) -> Path:
    """The Python of an environment with onnxruntime-gpu; with CUDA's own libraries where they are of use."""
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    package = "onnxruntime-gpu[cuda,cudnn]" if driver else "onnxruntime-gpu"
    print(f"installing {package} in {folder}", flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, package, "-e", str(ROOT), "pytest", "hypothesis"], check=True)
    return python


def _figures(options: argparse.Namespace) -> int:
    """Start the provider, and print a row for each family and type."""
    sys.path[:0] = [str(ROOT), str(TESTS)]
    from normfuse.errors import CannotVerifyError
    from normfuse.parity.providers import require

    try:
        require([options.ep])
    except CannotVerifyError as error:
        print(f"{error}\n{error.hint}")
        return NOT_VERIFIED
    import onnxruntime
    import spelled_families as families

    large = families.Size(1024, 1, 1), families.Size(320, 64, 32)
    print(f"onnxruntime {onnxruntime.__version__}, {options.ep}, {DIMS}\n")
    print("| family | type | operators | nodes | on it | verdict | error | allowed | times as fast |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, dtype in families.CASES:
            size = large[families.BODIES[name][0].startswith("[N")]
            proto = families.family(name, dtype, families.SMALL if options.small else size)
            print(_row(Path(folder), name, dtype, proto, options), flush=True)
    return 0


def _row(folder: Path, name: str, dtype: str, proto: object, options: argparse.Namespace) -> str:
    import onnx

    import normfuse
    from normfuse.errors import NormfuseError

    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.save(proto, before)
    dims = {name: size for name, size in DIMS.items() if name in _symbols(proto)}
    asked = normfuse.Options(providers=(options.ep,), dims=dims)
    try:
        report = normfuse.optimize(before, out=after, options=asked).report
    except NormfuseError as error:
        return f"| {name} | {dtype} | {error} | | | | | | |"
    made = ", ".join(dict.fromkeys(s.operator for s in report.sites if s.operator)) or "none"
    nodes = f"{report.nodes_before} → {report.nodes_after}"
    if report.parity is None:
        return f"| {name} | {dtype} | {made} | {nodes} | | {_left(report)} | | | |"
    placed = report.parity.placement
    where = f"{placed.there} of {placed.fused}" if placed is not None else ""
    (output,) = report.parity.outputs
    figures = f"{output.max_relative:.1e} | {output.bound:.1e}"
    return (
        f"| {name} | {dtype} | {made} | {nodes} | {where} | {report.parity.result} | {figures} |"
        f" {_faster(before, after, asked, options.seconds)} |"
    )


def _symbols(proto: object) -> set[str]:
    return {d.dim_param for d in proto.graph.input[0].type.tensor_type.shape.dim}  # type: ignore[attr-defined]


def _left(report: object) -> str:
    return ", ".join(f"{s.status}: {s.reason}" for s in report.sites)  # type: ignore[attr-defined]


def _faster(before: Path, after: Path, asked: object, seconds: float) -> str:
    """How many times as fast the result is, with its interval; or why that cannot be said."""
    from normfuse import api
    from normfuse.errors import NormfuseError

    try:
        (found,) = api.benchmark([before, after], asked, seconds=seconds)  # type: ignore[arg-type]
    except NormfuseError as error:
        return f"not timed: {str(error).partition(': ')[2]}"
    ratio = found.models[1].ratio
    return "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
