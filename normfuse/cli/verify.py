"""`normfuse verify A B`: whether two models compute the same."""

from __future__ import annotations

from normfuse.cli.options import Dims, First, Given, Inputs, Providers, Quiet, Second, Seed
from normfuse.cli.parse import parsed_options, with_inputs
from normfuse.cli.standard import STREAM, given_model
from normfuse.errors import CannotVerifyError, ParityError, UsageError
from normfuse.streams import writing


def verify(
    a: First,
    b: Second,
    ep: Providers = None,
    dim: Dims = None,
    inputs: Inputs = None,
    given: Given = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> int:
    """Compare what two models compute. Exit 0: they agree, 1: they differ, 4: it cannot be told."""
    options = with_inputs(parsed_options(None, ep, dim, seed, None), inputs, given)
    from normfuse import api

    if str(a) == str(b) == STREAM:
        raise UsageError("only one of the two models can come from standard input")
    verdicts = api.verify(given_model(a), given_model(b), options)
    if not quiet:
        from normfuse.report.comparison import print_verdict
        from normfuse.report.printing import console

        with writing():
            for verdict in verdicts:
                print_verdict(verdict, console())
    if any(verdict.result == "failed" for verdict in verdicts):
        return ParityError.exit_code
    return 0 if all(verdict.agrees for verdict in verdicts) else CannotVerifyError.exit_code
