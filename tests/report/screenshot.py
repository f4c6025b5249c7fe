"""Makes docs/images/report.png: the top of the HTML report on models/encoder.onnx, in a headless Chromium.

python tests/report/screenshot.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from browser import Browser

from normfuse.cli import run

ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT = 1100, 1250


def main() -> None:
    """Run normfuse, open its report, and keep the picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        page = work / "report.html"
        if run(["models/encoder.onnx", "-q", "-o", f"{work}/encoder.fused.onnx", "--report", str(page)]) != 0:
            raise SystemExit("the run failed")
        page.write_text(page.read_text("utf-8").replace(f"{work}/", ""), encoding="utf-8")
        with Browser(work / "profile") as browser:
            seen = browser.look(page, WIDTH, HEIGHT, whole=False)
    (ROOT / "docs" / "images").mkdir(exist_ok=True)
    (ROOT / "docs" / "images" / "report.png").write_bytes(seen.png)


if __name__ == "__main__":
    main()
