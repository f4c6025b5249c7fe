"""How fast a model runs after normfuse: against the original, by hand, without norms, and other tools.

    python benchmarks/speed.py                       everything (some minutes)
    python benchmarks/speed.py networks models       some of it
    python benchmarks/speed.py --peers PYTHON        with the tools that are installed in that Python as well
    python benchmarks/speed.py --markdown            and write the tables into docs/benchmarks.md

Everything runs in onnxruntime's CPU provider at ORT_ENABLE_ALL on one thread, in turns within one process.
The networks are exported by torch. A tool that no given Python has is left out, and a line says so.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import onnxruntime

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from compared import alone, peers, real, tables, whole  # noqa: E402
from compared.timing import Plan  # noqa: E402

Section = Callable[[Plan, Sequence[str]], str]

SECTIONS: dict[str, tuple[str, Section]] = {
    "networks": ("Whole networks", lambda plan, pythons: tables.networks(*whole.rows(plan, pythons))),
    "operators": ("Operators alone", lambda plan, pythons: tables.operators(alone.rows(plan))),
    "models": ("Real models", lambda plan, pythons: tables.models(*real.rows(plan))),
}


def machine() -> str:
    """What the figures were measured on."""
    return f"onnxruntime {onnxruntime.__version__}, {_processor()}, {platform.system()}, one thread."


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def insert(page: str, name: str, text: str) -> str:
    """The page with the text between the two markers of a name; ValueError where it has none."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no place for {name!r}")
    before, rest = page.split(begin, 1)
    return f"{before}{begin}{text}\n{end}{rest.split(end, 1)[1]}"


def write(name: str, text: str) -> None:
    """Put the text where it belongs in docs/."""
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def main() -> None:
    """Print the sections that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(SECTIONS))
    parser.add_argument(
        "--peers", action="append", default=[], metavar="PYTHON", help="an interpreter with other tools"
    )
    parser.add_argument("--rounds", type=int, default=12, help="of each of the four batches (default: 12)")
    parser.add_argument("--markdown", action="store_true", help=f"write the tables into docs/{PAGE.name}")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.sections) - set(SECTIONS))
    if unknown:
        parser.error(f"no such section: {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    keep = write if arguments.markdown else lambda name, text: None
    keep("machine", machine())
    print(f"{machine()}\n")
    for name in arguments.sections or SECTIONS:
        title, section = SECTIONS[name]
        text = section(Plan(batches=4, rounds=arguments.rounds), peers.pythons(arguments.peers))
        print(f"## {title}\n\n{text}\n", flush=True)
        keep(name, text)


if __name__ == "__main__":
    main()
