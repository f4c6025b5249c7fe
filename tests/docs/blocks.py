"""The fenced blocks of the documentation, and what is known of those that a test cannot run.

    <!-- slow -->         before a block: run with the slow tests
    <!-- after: 2 -->     before a block: run behind the 2 blocks before it, in their folder

A line of a ```sh block may end in `# exit 5`; without that it has to end with 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))

NOT_RUN = {
    r"pip install|python3? -m venv": "installs packages from an index; .ci/run does it in a new environment",
    r"^pytest|^ruff|^mkdocs": "checks the repository itself; .ci/run does",
    r"^docker ": "needs a Docker daemon",
    r"tcp://": "needs a Dask cluster; tests/integrations/test_dask.py starts one",
    r"--ep (cuda|TensorrtExecutionProvider)": "needs a GPU; the tests marked `cuda` have one",
    r"--ep openvino": "needs onnxruntime-openvino; tests/parity/test_openvino.py has it",
    r"--custom-op-library": "needs a library; tests/parity/test_custom_operators.py has one",
    r"^olive run|integrations\.olive": "is run by tests/integrations/test_olive.py",
    r"^python benchmarks/": "measures for minutes; its page holds what it printed",
    r"--install-completion": "changes the user's shell; tests/cli/test_completion.py",
}
"""Commands (a pattern found in the line) that are only checked for their syntax, each with the reason."""

_FENCE = re.compile(
    r"(?P<notes>(?:^<!-- [^\n]+ -->\n+)*)"
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block. name: page and number among those of its language, such as "bench.md 2".

    shown: the ```text block right behind it, which is what its last command prints.
    """

    name: str
    text: str
    slow: bool = False
    after: int = 0
    shown: str = ""


@dataclass(frozen=True)
class Line:
    """One command, continuation lines joined, and the exit code that the page promises."""

    command: str
    code: int = 0

    @property
    def not_run(self) -> str | None:
        """Why it is not run, if it is not."""
        return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, self.command)), None)


def blocks(language: str) -> list[Block]:
    """All blocks of one language, page by page."""
    return [block for page in PAGES for block in of_page(page, language)]


def of_page(page: Path, language: str) -> list[Block]:
    """The blocks of one language on a page."""
    name = page.relative_to(DOCS if DOCS in page.parents else ROOT)
    text = page.read_text("utf-8")
    found = [m for m in _FENCE.finditer(text) if m["language"] == language]
    return [_block(f"{name} {k}", match, text) for k, match in enumerate(found, 1)]


def _block(name: str, match: re.Match[str], page: str) -> Block:
    behind = _FENCE.match(page, match.end() + 2)
    shown = behind["text"] if behind is not None and behind["language"] == "text" else ""
    after = re.search(r"<!-- after: (\d+) -->", match["notes"])
    indent = len(match["indent"])
    text = "".join(line[indent:] for line in match["text"].splitlines(keepends=True))
    return Block(name, text, "<!-- slow -->" in match["notes"], int(after[1]) if after else 0, shown)


def lines(block: Block) -> Iterator[Line]:
    """The commands of a ```sh block."""
    for command in block.text.replace("\\\n", " ").splitlines():
        if not command.strip() or command.lstrip().startswith("#"):
            continue
        code = re.search(r"#\s+exit (\d+)", command)
        yield Line(command.strip(), int(code[1]) if code else 0)
