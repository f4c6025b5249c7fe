"""`normfuse inspect MODEL`: every candidate, what it is, and why it would be fused or not."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from normfuse.cli.options import Json, MaxOpset, Model, NodeName, Providers, Target
from normfuse.cli.parse import parsed_options
from normfuse.cli.results import print_json
from normfuse.cli.standard import given_model
from normfuse.streams import writing

if TYPE_CHECKING:
    from normfuse.options import Options


def inspect(
    model: Model,
    target: Target = None,
    max_opset: MaxOpset = None,
    ep: Providers = None,
    node: NodeName = None,
    as_json: Json = False,
) -> int:
    """List every candidate of a model: what it is, whether it would be fused, why not, and what to do."""
    options = parsed_options(target, ep, None, 0, None, max_opset=max_opset)
    if node is not None:
        return _explain(model, node, options, as_json)
    from normfuse import api

    report = api.inspect(given_model(model), options)
    if as_json:
        print_json(report.to_dict())
    else:
        from normfuse.report.inspection import print_inspection
        from normfuse.report.printing import console

        with writing():
            print_inspection(report, console())
    return 0


def _explain(model: Path, node: str, options: Options, as_json: bool) -> int:
    from normfuse.explaining import explain
    from normfuse.report.explanation import print_explanation
    from normfuse.report.printing import console

    explanation = explain(given_model(model), node, options)
    if as_json:
        print_json(asdict(explanation))
    else:
        with writing():
            print_explanation(explanation, console())
    return 0
