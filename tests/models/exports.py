"""The twenty exports of transformers that are tested: five architectures, four ways to export each.

    python tests/models/exports.py DIR      writes all twenty .onnx files

All of them have a dynamic batch, and a dynamic sequence where there is one. The table says how many norm
modules each architecture holds, and so how many fused nodes a result must hold, whatever the export left.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

# architecture: the kind of its norm modules, and how many (two a layer and one more, two layers)
NORMS: dict[str, tuple[str, int]] = {
    "bert": ("LayerNorm", 5),
    "gpt2": ("LayerNorm", 5),
    "llama": ("RMSNorm", 5),
    "t5": ("RMSNorm", 5),
    "vit": ("LayerNorm", 5),
}

# what the exporter itself leaves spelled out; the others come with fused nodes
SPELLED_OUT = {
    *((family, "torchscript", 13) for family in NORMS),
    ("llama", "torchscript", 17),
    ("t5", "torchscript", 17),
    ("llama", "dynamo", 18),
    ("t5", "dynamo", 18),
}

WAYS = (("torchscript", 13), ("torchscript", 17), ("dynamo", 18), ("dynamo", 23))


@dataclass(frozen=True)
class Export:
    """One of the twenty: an architecture, an exporter ("torchscript" or "dynamo") and an opset."""

    family: str
    exporter: str
    opset: int

    @property
    def name(self) -> str:
        """Such as bert-torchscript-13: the test's id and the file's stem."""
        return f"{self.family}-{self.exporter}-{self.opset}"

    @property
    def kind(self) -> str:
        """LayerNorm or RMSNorm."""
        return NORMS[self.family][0]

    @property
    def norms(self) -> int:
        """How many norm modules the torch module holds."""
        return NORMS[self.family][1]

    @property
    def spelled_out(self) -> bool:
        """Whether the export holds its norms in small operators."""
        return (self.family, self.exporter, self.opset) in SPELLED_OUT

    def write(self, path: Path) -> Path:
        """Build the module and export it."""
        import torch_models  # torch takes seconds to import, so only where it is needed

        family = torch_models.FAMILIES[self.family]
        return torch_models.write(family, path, dynamo=self.exporter == "dynamo", opset=self.opset)


EXPORTS = tuple(Export(family, exporter, opset) for family in NORMS for exporter, opset in WAYS)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for each in EXPORTS:
        print(each.write(folder / f"{each.name}.onnx"))
