"""normfuse as a pass of an Olive workflow (extra `normfuse[olive]`, olive-ai 0.13 and newer).

python -m normfuse.integrations.olive > passes.json            Olive's own passes, and this one
olive run --config workflow.json --package-config passes.json

{"passes": {"fuse": {"type": "NormFuse", "target": "ort-cpu"}}, …}      in workflow.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from olive.hardware.accelerator import AcceleratorSpec
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.package_config import OlivePackageConfig
from olive.passes import Pass
from olive.passes.pass_config import BasePassConfig, PassConfigParam
from olive.resource_path import LocalFile, LocalFolder

from normfuse import api
from normfuse.options import Options

MODULE = "normfuse.integrations.olive.NormFuse"
_EVERYTHING = ["*"]
PACKAGE_CONFIG: dict[str, Any] = {
    "module_path": MODULE,
    "supported_providers": _EVERYTHING,
    "supported_accelerators": _EVERYTHING,
    "supported_precisions": _EVERYTHING,
    "supported_algorithms": [],
    "supported_quantization_encodings": [],
}


class NormFuse(Pass):  # type: ignore[misc]
    """Fuses normalizations, folds BatchNorms, and verifies the result on the provider of the workflow."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:
        return {
            "target": PassConfigParam(
                type_=str,
                default_value=None,
                description="onnx, ort, ort-cpu or ort-cuda; by default what the execution provider says.",
            ),
            "verify": PassConfigParam(
                type_=bool, default_value=True, description="Run the result and compare it with the original."
            ),
            "skip": PassConfigParam(
                type_=list,
                default_value=[],
                description="Kinds, or names of nodes, that are left as they are.",
            ),
            "dims": PassConfigParam(
                type_=dict, default_value={}, description="Sizes of symbolic dimensions while verifying."
            ),
        }

    def _run_for_config(
        self, model: ONNXModelHandler, config: type[BasePassConfig], output_model_path: str
    ) -> ONNXModelHandler:
        source = Path(model.model_path)
        out = Path(resolve_onnx_path(output_model_path, source.name))
        out.parent.mkdir(parents=True, exist_ok=True)
        result = api.optimize(source, out, _options(config, self.accelerator_spec))
        written = result.report.written
        assert written is not None
        if any(path != out for path in out.parent.iterdir()):  # its weights, in a file of their own
            return ONNXModelHandler(model_path=LocalFolder({"path": out.parent}), onnx_file_name=out.name)
        return ONNXModelHandler(model_path=LocalFile({"path": written}))


def _options(config: Any, accelerator: AcceleratorSpec) -> Options:
    provider = str(accelerator.execution_provider or "CPUExecutionProvider")
    return Options(
        target=config.target,
        providers=(provider.removesuffix("ExecutionProvider").lower(),),
        dims=config.dims,
        verify=config.verify,
        skip=tuple(config.skip),
        copy_data=True,
    )


def package_config() -> dict[str, Any]:
    """Olive's own package configuration, with this pass in it: a workflow takes all its passes from one."""
    found: dict[str, Any] = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text("utf-8"))
    found["passes"]["NormFuse"] = PACKAGE_CONFIG
    return found


if __name__ == "__main__":
    json.dump(package_config(), sys.stdout, indent=2)
