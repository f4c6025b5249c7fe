"""Reason codes for people: the list of them, and the page of one."""

from __future__ import annotations

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from normfuse.norms.refusal import REASONS
from normfuse.report.reason_pages import page


def print_reasons(out: Console) -> None:
    """Every code with its sentence."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    for code, sentence in REASONS.items():
        table.add_row(code, sentence)
    out.print(table)
    out.print("\nnormfuse explain CODE has an example of each, and what to do")


def print_page(code: str, out: Console) -> None:
    """The page of a code: set for a terminal, and as it is written elsewhere."""
    text = page(code)
    if out.is_terminal:
        out.print(Markdown(text))
    else:
        out.print(text, end="")
