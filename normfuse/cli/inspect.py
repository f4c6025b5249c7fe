"""`normfuse inspect MODEL`: every candidate, what it is, and why it would be fused or not."""

from __future__ import annotations

import sys

from normfuse.cli.options import Json, Model, Providers, Target
from normfuse.cli.parse import parsed_options
from normfuse.cli.standard import given_model
from normfuse.streams import writing


def inspect(model: Model, target: Target = None, ep: Providers = None, as_json: Json = False) -> int:
    """List every candidate of a model: what it is, whether it would be fused, why not, and what to do."""
    options = parsed_options(target, ep, None, 0, None)
    from normfuse import api

    report = api.inspect(given_model(model), options)
    if as_json:
        from normfuse.report.json_report import to_json

        with writing():
            sys.stdout.write(to_json(report.to_dict()))
    else:
        from normfuse.report.inspection import print_inspection
        from normfuse.report.printing import console

        with writing():
            print_inspection(report, console())
    return 0
