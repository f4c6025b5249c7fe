"""`normfuse bench A [B …]`: the latency of models side by side."""

from __future__ import annotations

from normfuse.cli.options import (
    BenchModels,
    BenchProfile,
    BenchSeconds,
    CustomOps,
    Dims,
    Given,
    Inputs,
    Json,
    Providers,
    Seed,
    Threads,
)
from normfuse.cli.parse import parsed_options, with_inputs
from normfuse.cli.results import print_json, progress_shown
from normfuse.cli.standard import given_models
from normfuse.streams import writing


def bench(
    models: BenchModels,
    ep: Providers = None,
    threads: Threads = 1,
    seconds: BenchSeconds = 5.0,
    profile: BenchProfile = False,
    dim: Dims = None,
    inputs: Inputs = None,
    given: Given = None,
    custom_op_library: CustomOps = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Measure the latency of models side by side: in one process, in turns, at ORT_ENABLE_ALL.

    The first model is what the others are compared with; it also runs against itself, which shows the noise
    of the machine.
    """
    options = with_inputs(parsed_options(None, ep, dim, seed, None), inputs, given, custom_op_library)
    given_ones = given_models(models)
    from normfuse import api

    with progress_shown(as_json) as progress:
        found = api.benchmark(
            given_ones,
            options,
            threads=threads,
            seconds=seconds,
            profile=profile,
            progress=progress,
        )
    if as_json:
        print_json([each.to_dict() for each in found])
        return 0
    from normfuse.report.latency import print_benchmark
    from normfuse.report.printing import console

    with writing():
        for each in found:
            print_benchmark(each, console())
    return 0
