"""Measure the lowerings of each distinct site on this machine, and take the fastest that passes parity.

    original -> one run records what each site reads       the shapes it has, and values to run it on
    variants -> the candidates of each site, cut out       equal sites once, see fingerprint.py
             -> in turns, a few milliseconds each          see turns.py
             -> the default, unless another is faster      see choosing.py

A site alone is not the whole model: the caller compares the whole before a choice counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from normfuse.bench.candidates import Spot, Variant, proto, spot
from normfuse.bench.choosing import Choice, Measure, choose, unmeasured
from normfuse.bench.fingerprint import Fingerprint, fingerprint
from normfuse.bench.running import deployed, prepared
from normfuse.bench.turns import Run, take_turns
from normfuse.errors import CannotVerifyError
from normfuse.parity.adversarial import Variant as Recording
from normfuse.parity.baseline import Baseline
from normfuse.parity.model import serialize
from normfuse.parity.record import recordings
from normfuse.parity.sessions import Reference, RuntimeRefusalError
from normfuse.parity.settings import Feed, Settings
from normfuse.parity.sites import certify

# Seconds for all candidates of one site, and for one turn of one of them.
BUDGET, TURN = 0.25, 0.002
LEAST_ROUNDS = 21

Choices = Mapping[str, tuple[str, ...]]


def measure_briefly(runs: Sequence[Run]) -> list[list[float]]:
    """The candidates of one site in turns.

    The time of a turn is that of its quickest run: runs are so short that most of what is added to one is not
    the candidate's.
    """
    return take_turns(runs, BUDGET, turn=TURN, least=LEAST_ROUNDS, of=min)


@dataclass(frozen=True, eq=False)
class Tuner:
    """Chooses the lowerings of one model's sites.

    baseline: the original, with inputs that it accepts. threads: of one operator, 0 for the runtime's choice.
    """

    baseline: Baseline
    settings: Settings
    threads: int = 1
    measure: Measure = measure_briefly

    def choices(self, variants: Sequence[Variant], lowerings: Choices) -> list[Choice]:
        """A choice for each site of `lowerings`; variants: at place k each site in its k-th way.

        Raises CannotVerifyError where onnxruntime does not run the original.
        """
        if isinstance(self.baseline.runner, Reference):
            raise CannotVerifyError("onnxruntime does not run this model, so there is nothing to tune")
        spots = {name: spot(self.baseline.model, variants, name, ways) for name, ways in lowerings.items()}
        found = {n: unmeasured(n, lowerings[n], s) for n, s in spots.items() if isinstance(s, str)}
        known: dict[Fingerprint, Choice] = {}
        for each, recorded in self._recorded([s for s in spots.values() if isinstance(s, Spot)]):
            if not recorded:
                found[each.name] = unmeasured(
                    each.name, each.lowerings, "what it reads could not be recorded"
                )
                continue
            found[each.name] = self._choice(each, recorded, known)
        return [found[name] for name in lowerings]

    def _recorded(self, spots: Sequence[Spot]) -> Iterator[tuple[Spot, list[Recording]]]:
        """Each site with what it reads on the first inputs."""
        sites = [each.widest for each in spots]
        by_site = dict(zip(map(id, sites), spots, strict=True))
        for site, recorded in recordings(
            self.baseline.runner, self.baseline.model, sites, self.baseline.trials[:1], self.settings
        ):
            yield by_site[id(site)], recorded

    def _choice(self, each: Spot, recorded: list[Recording], known: dict[Fingerprint, Choice]) -> Choice:
        feed = recorded[0][1]
        key = fingerprint(proto(site.after, feed, each.also) for site in each.usable)
        if key not in known:
            known[key] = choose(
                each.name,
                each.lowerings,
                partial(self._opened, each, feed),
                self.measure,
                partial(self._fault, each, recorded),
            )
        return replace(known[key], site=each.name)

    def _opened(self, each: Spot, feed: Feed, index: int) -> Run | str:
        """A candidate ready to run at the level of deployment, or why it does not."""
        site = each.cuts[index]
        if isinstance(site, str):
            return site
        inputs = {name: feed[name] for name in site.after.inputs}
        try:
            model = serialize(proto(site.after, inputs, each.also))
            return prepared(deployed(model, self.settings, self.threads), [inputs], self.settings)
        except RuntimeRefusalError as error:
            return f"does not run: {error}"

    def _fault(self, each: Spot, recorded: list[Recording], index: int) -> str:
        """Why a candidate fails parity, or ""."""
        site = each.cuts[index]
        if isinstance(site, str):
            return site
        verdict = certify(site, recorded, self.settings).verdict
        return "" if verdict.result in ("equal", "improved") else f"{verdict.result}: {verdict.detail}"
