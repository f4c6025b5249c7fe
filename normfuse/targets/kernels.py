"""Which operator has a kernel for which data type, on which runtime, from which opset on.

The installed onnxruntime is asked for its own list (`get_all_opkernel_def`; 1.20 and 1.32 both have it). For
what it cannot tell, `TABLE` stands: nothing is installed, or the provider is not in this build. `TABLE` is
that list of 1.32 (for CUDA docs/OperatorKernels.md of its sources), so that release need not even be
imported; `standard` is what ONNX's specification allows.

An operator that onnxruntime has no kernel for, and would expand into the body of its function, is not here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir

from normfuse import versions

_F32, _F16, _BF16, _F64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE

ALL_FLOATS = frozenset({_F32, _F16, _BF16, _F64})
_NO_BF16, _SINGLE = ALL_FLOATS - {_BF16}, frozenset({_F32})
_NO_DOUBLE = ALL_FLOATS - {_F64}

CONTRIB = "com.microsoft"
DOMAINS = {
    "GroupNorm": CONTRIB,
    "SkipLayerNormalization": CONTRIB,
    "SkipSimplifiedLayerNormalization": CONTRIB,
}
"""The domain of an operator that is not in ONNX's own."""

TABLE_RELEASE = "1.32"
_PROVIDERS = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda"}
# Those that are built into the runtime itself.
_SAFE_TO_ASK = frozenset({"CPUExecutionProvider", "AzureExecutionProvider"})
_NEWEST = 1 << 30


@dataclass(frozen=True)
class Kernel:
    """Data types that an operator is computed in, at opsets from `since` to `until`."""

    dtypes: frozenset[ir.DataType]
    since: int = 1
    until: int = _NEWEST


Kernels = Mapping[tuple[str, str], tuple[Kernel, ...]]

TABLE: Kernels = {
    ("LayerNormalization", "cpu"): (Kernel(ALL_FLOATS),),
    ("SimplifiedLayerNormalization", "cpu"): (Kernel(ALL_FLOATS),),
    ("RMSNormalization", "cpu"): (Kernel(_NO_BF16, 23),),
    ("InstanceNormalization", "cpu"): (Kernel(_SINGLE, 6),),
    ("BatchNormalization", "cpu"): (Kernel(frozenset({_F32, _F64}), 7),),
    ("LRN", "cpu"): (Kernel(_SINGLE),),
    ("MatMul", "cpu"): (Kernel(frozenset({_F32, _F64})),),
    ("Sum", "cpu"): (Kernel(frozenset({_F32, _F64}), 6),),
    ("SkipLayerNormalization", "cpu"): (Kernel(_NO_DOUBLE),),
    ("SkipSimplifiedLayerNormalization", "cpu"): (Kernel(_NO_DOUBLE),),
    ("LayerNormalization", "cuda"): (Kernel(ALL_FLOATS),),
    ("SimplifiedLayerNormalization", "cuda"): (Kernel(ALL_FLOATS),),
    ("RMSNormalization", "cuda"): (Kernel(ALL_FLOATS, 23),),
    ("InstanceNormalization", "cuda"): (Kernel(_NO_BF16, 6),),
    ("BatchNormalization", "cuda"): (Kernel(_NO_BF16, 7),),
    ("LRN", "cuda"): (Kernel(_NO_BF16),),
    ("Sum", "cuda"): (Kernel(_NO_BF16, 6),),
    ("GroupNorm", "cuda"): (Kernel(frozenset({_F32, _F16})),),
    ("SkipLayerNormalization", "cuda"): (Kernel(_NO_DOUBLE),),
    ("SkipSimplifiedLayerNormalization", "cuda"): (Kernel(_NO_DOUBLE),),
    # By the specification both compute the statistics in float32 (stash_type): too coarse for float64.
    ("LayerNormalization", "standard"): (Kernel(_NO_DOUBLE, 17),),
    ("RMSNormalization", "standard"): (Kernel(_NO_DOUBLE, 23),),
    ("InstanceNormalization", "standard"): (Kernel(_NO_BF16, 6),),
    ("BatchNormalization", "standard"): (Kernel(_NO_BF16, 7),),
    ("LRN", "standard"): (Kernel(_NO_BF16, 1, 12), Kernel(ALL_FLOATS, 13)),
}


def has_kernel(
    operator: str, runtimes: tuple[str, ...], dtype: ir.DataType, opset: int | None = None
) -> bool:
    """Whether every one of the runtimes computes an operator in a data type, at an opset (None: at any)."""
    return all(_has(operator, runtime, dtype, opset) for runtime in runtimes)


def since(operator: str, runtimes: tuple[str, ...], dtype: ir.DataType) -> int | None:
    """The opset from which every one of the runtimes has an operator; None where one never has."""
    firsts = [
        min((k.since for k in kernels(operator, r) if _takes(k, dtype, r)), default=None) for r in runtimes
    ]
    known = [first for first in firsts if first is not None]
    return max(known) if len(known) == len(firsts) else None


def kernels(operator: str, runtime: str) -> tuple[Kernel, ...]:
    """The kernels of an operator: those of the installed onnxruntime, else those of the table."""
    own = installed()
    if any(known == runtime for _, known in own):
        return own.get((operator, runtime), ())
    return TABLE.get((operator, runtime), ())


def _has(operator: str, runtime: str, dtype: ir.DataType, opset: int | None) -> bool:
    found = (k for k in kernels(operator, runtime) if _takes(k, dtype, runtime))
    return any(opset is None or operator in DOMAINS or k.since <= opset <= k.until for k in found)


def _takes(kernel: Kernel, dtype: ir.DataType, runtime: str) -> bool:
    """Whether a kernel computes a type; the CPU provider casts float16 to float32 and back."""
    return dtype in kernel.dtypes or (runtime == "cpu" and dtype == _F16 and _F32 in kernel.dtypes)


@cache
def release() -> str | None:
    """The version of the installed onnxruntime, found without importing it; None where there is none."""
    return next(iter(versions.installed(versions.RUNTIMES).values()), None)


@cache
def installed() -> Kernels:
    """The kernels of the installed onnxruntime; nothing where the table says the same or nothing is told."""
    found = release()
    if found is None or found.startswith(f"{TABLE_RELEASE}."):
        return {}
    return listed()


def listed() -> Kernels:
    """The kernels that the installed onnxruntime lists, as far as `TABLE` has the operator."""
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def, get_available_providers

        if not _SAFE_TO_ASK.issuperset(get_available_providers()):
            return {}  # a provider in a library of its own, when that cannot be loaded, ends the process
        definitions = get_all_opkernel_def()
    except (ImportError, RuntimeError) as error:  # a provider of this build may lack its driver
        logging.getLogger(__name__).info("onnxruntime does not list its kernels: %s", error)
        return {}
    wanted = {operator for operator, _ in TABLE}
    result: dict[tuple[str, str], tuple[Kernel, ...]] = {}
    for each in definitions:
        runtime = _PROVIDERS.get(each.provider)
        if runtime is None or each.op_name not in wanted or each.domain != DOMAINS.get(each.op_name, ""):
            continue
        names = each.type_constraints.get("T", ())
        allowed = _NO_DOUBLE if each.domain == CONTRIB else ALL_FLOATS
        dtypes = frozenset(t for t in allowed if f"tensor({_NAMES[t]})" in names)
        first, last = each.version_range
        key = (each.op_name, runtime)
        result[key] = (*result.get(key, ()), Kernel(dtypes, first, last))
    return result


_NAMES = {_F32: "float", _F16: "float16", _BF16: "bfloat16", _F64: "double"}
