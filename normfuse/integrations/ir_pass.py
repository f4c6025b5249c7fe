"""normfuse as an onnx-ir pass, to be composed with others.

passes = onnx_ir.passes.Sequential(normfuse.NormFusePass(), common_passes.RemoveUnusedNodesPass())
passes(model)
"""

from __future__ import annotations

import onnx_ir as ir

from normfuse import api
from normfuse.options import Options
from normfuse.report.record import Report


class NormFusePass(ir.passes.InPlacePass):
    """Fuses normalizations and folds affines in place, and verifies the result as `optimize` does.

    The model object stays the same one; its graph, functions and IR version are those of the result, and the
    opset may have been raised. A model that does not pass its check stays as it was, and the error is raised.

    options: as of `optimize`; `Options(verify=False)` runs nothing.
    report: of the last call, None before it.
    """

    def __init__(self, options: Options | None = None) -> None:
        super().__init__()
        self.options = options or Options()
        self.report: Report | None = None

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite a model; raises what `optimize` raises."""
        result = api.optimize(model, options=self.options)
        self.report = result.report
        done = result.model
        if result.report.changed and isinstance(done, ir.Model):
            model.graph = done.graph
            model.functions.clear()
            model.functions.update(done.functions)
            model.ir_version = done.ir_version
            model.metadata_props.update(done.metadata_props)
        return ir.passes.PassResult(model, modified=result.report.changed)
