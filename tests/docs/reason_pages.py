"""The pages of docs/reasons: one for each reason code, with an example that ends with it.

    python tests/docs/reason_pages.py      writes anew what normfuse says for each example

A page may open with comments that say how its example is run:

    <!-- target: onnx -->      --target onnx
    <!-- skip: y -->           --skip y
    <!-- taken-back: y -->     as after a failed parity check of the site that computes y
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from unittest.mock import patch

import onnx
from onnx import parser
from rich.console import Console

from normfuse import api
from normfuse.options import Options, leaver
from normfuse.report.inspection import print_inspection
from normfuse.report.record import Report

PAGES = Path(__file__).parents[2] / "docs" / "reasons"
_OPTION = re.compile(r"<!-- ([a-z-]+): (.+?) -->\n")
_TEXT = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)


def example(page: str) -> onnx.ModelProto:
    """The model on a page, checked."""
    found = re.search(r"```onnx\n(.*?)```", page, re.DOTALL)
    if found is None:
        raise ValueError("the page has no ```onnx block")
    model = parser.parse_model(found[1])
    onnx.checker.check_model(model)
    return model


def inspected(page: str) -> Report:
    """What normfuse reports of the example, run as the page's comments say."""
    options = dict(_OPTION.findall(page))
    taken_back = [options["taken-back"]] if "taken-back" in options else []
    skip = (options["skip"],) if "skip" in options else ()
    with patch.object(api, "leaver", lambda skipped, _: leaver(skipped, taken_back)):
        return api.inspect(example(page), Options(target=options.get("target"), skip=skip))


def printed(report: Report) -> str:
    """What `normfuse inspect` prints of the candidates, and of the reasons."""
    out = Console(file=io.StringIO(), width=140, markup=False, emoji=False, highlight=False)
    print_inspection(report, out)
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    first = next(k for k, line in enumerate(lines) if line.split()[:2] == ["kind", "node"])
    return "\n".join(line.rstrip()[2:] for line in lines[first:-2]) + "\n"


def said(page: str) -> str:
    """What the page says that normfuse prints."""
    found = _TEXT.search(page)
    return found[0] if found is not None else ""


def refresh(path: Path) -> None:
    """Put what normfuse prints now onto a page."""
    page = path.read_text(encoding="utf-8")
    path.write_text(_TEXT.sub(lambda _: printed(inspected(page)), page, count=1), encoding="utf-8")


if __name__ == "__main__":
    for each in sorted(PAGES.glob("*.md")):
        refresh(each)
