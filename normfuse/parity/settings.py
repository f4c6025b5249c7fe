"""What a parity check is asked to do: plain frozen data, given by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Feed = Mapping[str, Array]


@dataclass(frozen=True)
class Boundary:
    """Where one rewrite begins and ends, by names that exist in both models.

    kind: the family ("LayerNorm", "RMSNorm", "BatchNorm", "Affine", …).
    input, output: the values that the rewrite reads and writes; an output keeps its name.
    label: what a user calls it, such as the name of its anchor node.
    inputs: all values that it reads, where there are several (a residual add); else empty.
    constant: the name of the initializer in the rewritten model that holds the output, where the rewrite was
        to compute it at once; nothing is read then.
    """

    kind: str
    input: str
    output: str
    label: str = ""
    inputs: tuple[str, ...] = ()
    constant: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """All values that the rewrite reads."""
        return self.inputs or ((self.input,) if self.input else ())


@dataclass(frozen=True)
class Settings:
    """How to check.

    provider: "cpu", "cuda", "openvino", …, or the full name of an execution provider.
    dims: values for symbolic dimensions, where the made ones are not wanted (`--dim S=7`).
    seed: what random inputs are made from; the same seed makes the same inputs.
    inputs: the user's own inputs, one mapping a run; made ones are used when there are none.
    given: how single inputs are made, "random:LOW:HIGH", "zeros", "ones" or a `.npy` file (`--input`).
    deployed: also run at the optimization level that users deploy with.
    max_memory: bytes; above it, sites are certified one by one on made inputs and the model is not run.
    record_memory: bytes of intermediate values that are held at a time.
    custom_operators: the library that a model with custom operators needs.
    standard: the result is for any runtime, so what this one has no kernel for is computed by ONNX's own
        reference evaluator.
    made_for: the providers that the result is for, where they are some alone; on another, an operator without
        a kernel is computed by the reference evaluator too.
    """

    provider: str = "cpu"
    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    inputs: Sequence[Feed] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    deployed: bool = True
    max_memory: int | None = None
    record_memory: int = 512 << 20
    custom_operators: Path | None = None
    standard: bool = False
    made_for: tuple[str, ...] = ()

    @property
    def elsewhere(self) -> bool:
        """Whether the result is for other providers than the one that it is checked on."""
        return bool(self.made_for) and self.provider not in self.made_for


def on_cpu(settings: Settings) -> Settings:
    """The same, on the CPU provider."""
    return replace(settings, provider="cpu")
