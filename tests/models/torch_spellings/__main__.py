"""Print what came of every export: one line a module, then the shares, by exporter and by dtype.

python -m torch_spellings [--dtype fp32] [--exporter dyd] [--target onnx] [--json FILE] [MODULE ...]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .outcome import Outcome, outcome
from .table import SPELLINGS, Spelling, Way, ways


def outcomes(
    names: Iterable[str], wanted: Callable[[Way], bool], target: str | None
) -> Iterator[tuple[Spelling, Way, Outcome]]:
    """Run them, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.onnx"
        for name in names:
            for way in ways(SPELLINGS[name]):
                if wanted(way):
                    yield SPELLINGS[name], way, outcome(SPELLINGS[name], way, out, target)


def share(results: Iterable[Outcome]) -> str:
    """Such as 97/98 (99.0 %); what was not exported does not count."""
    exported = [result for result in results if result.verdict != "no-export"]
    good = sum(result.good for result in exported)
    return f"{good}/{len(exported)} ({100 * good / len(exported):.1f} %)" if exported else "-"


def show(spelling: Spelling, results: dict[str, Outcome]) -> None:
    """One module: everything that is not as asked, grouped by what it is."""
    print(f"{spelling.name} [{spelling.family}, {spelling.expectation}]  {share(results.values())}")
    groups: defaultdict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for way, result in results.items():
        if not result.good:
            groups[result.verdict, result.why, result.operators].append(way)
    for (verdict, why, operators), where in groups.items():
        print(f"    {verdict}: {why}  [{' '.join(where)}]\n        {' '.join(operators)}", flush=True)


def totals(found: list[tuple[Spelling, Way, Outcome]]) -> None:
    """The shares of what is promised, and of folds."""
    kinds = (("promised", lambda s: s.promised), ("folds", lambda s: s.expectation in ("fold", "fold_hard")))
    for title, belongs in kinds:
        chosen = [(way, result) for spelling, way, result in found if belongs(spelling)]
        print(f"\n{title}: {share(result for _, result in chosen)}")
        for key in ("dtype", "exporter"):
            groups: defaultdict[str, list[Outcome]] = defaultdict(list)
            for way, result in chosen:
                groups[getattr(way, key)].append(result)
            print("   ", "   ".join(f"{name} {share(results)}" for name, results in groups.items()))
    verdicts: defaultdict[str, int] = defaultdict(int)
    for _, _, result in found:
        verdicts[result.verdict] += 1
    print("\nall:", dict(verdicts), "unverified:", sum(result.unverified for *_, result in found))


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--dtype", nargs="+", default=["fp32", "fp16", "bf16"])
    parser.add_argument("--exporter", nargs="+", default=["ts", "tsp", "dy", "dyraw", "dyd"])
    parser.add_argument("--target")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()

    def wanted(way: Way) -> bool:
        return way.dtype in given.dtype and way.exporter in given.exporter

    found: list[tuple[Spelling, Way, Outcome]] = []
    for name in given.modules or SPELLINGS:
        some = list(outcomes([name], wanted, given.target))
        show(SPELLINGS[name], {way.name: result for _, way, result in some})
        found += some
    totals(found)
    if given.json:
        given.json.write_text(json.dumps([dataclasses.asdict(result) for *_, result in found], indent=1))


if __name__ == "__main__":
    main()
