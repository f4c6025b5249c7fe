"""What the documentation names exists: options in the text, commands and files of pipelines, data."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from blocks import DOCS, PAGES, ROOT, Block, blocks

from normfuse.cli import entry

yaml = pytest.importorskip("yaml")
FOREIGN = {"--rm", "--user", "--config", "--package-config", "--fix", "--check", "--sample"}
"""Options of docker, olive, ruff and pytest."""


def options(command: str) -> set[str]:
    return {name for parameter in entry._typer(command).params for name in parameter.opts}


def known() -> set[str]:
    found = set[str]().union(*(options(command) for command in (entry.MAIN, *entry.COMMANDS)))
    for script in (ROOT / "benchmarks").glob("*.py"):
        found |= set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', script.read_text("utf-8")))
    return found | FOREIGN | {"--help"}


def outside_fences(page: str) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", page, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_option_in_the_text_exists(path: Path) -> None:
    texts = re.findall(r"`([^`\n]+)`", outside_fences(path.read_text("utf-8")))
    named = {option for text in texts for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}
    assert named <= known()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_stands_where_it_is_run(path: Path) -> None:
    """A command that is only indented is run by no test; one with a placeholder such as MODEL is none."""
    indented = re.findall(
        r"^    (?:normfuse|python|pip) .*$", outside_fences(path.read_text("utf-8")), re.MULTILINE
    )
    assert [line for line in indented if not re.search(r"\b(MODEL|DIR|A B|A \[B)", line)] == []


def pipelines() -> list[Block]:
    return [block for language in ("yaml", "groovy") for block in blocks(language)]


@pytest.mark.parametrize("block", pipelines(), ids=lambda block: block.name)
def test_commands_in_pipelines_are_understood(block: Block) -> None:
    lines = [shlex.split(line)[1:] for line in re.findall(r"\bnormfuse (?:models|model\.onnx).*", block.text)]
    lines += [["models", *shlex.split(text)] for text in re.findall(r"arguments: (.*)", block.text)]
    lines += [["models", *words] for words in map(_listed, re.findall(r"args: \[(.*)\]", block.text))]
    assert lines
    for words in lines:
        entry._typer(entry.MAIN).make_context("normfuse", words)


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


@pytest.mark.parametrize("block", blocks("yaml") + blocks("json"), ids=lambda block: block.name)
def test_data_can_be_read(block: Block) -> None:
    assert json.loads(block.text) if block.text.startswith("{") else yaml.safe_load(block.text)


def test_the_pages_name_what_the_repository_offers() -> None:
    page = (DOCS / "pipelines.md").read_text("utf-8")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert f"id: {hook['id']}" in page
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    for name, given in action["inputs"].items():
        assert f"{name}: " in page or not given.get("required", False)
