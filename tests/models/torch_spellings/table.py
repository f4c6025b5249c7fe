"""What must come of each module, and in how many ways each is exported. Needs no torch.

ts    TorchScript           tsp   the same with training=PRESERVE, nothing folded
dy    dynamo                dyraw without its optimizer, functions inlined
dyd   decomposed to core operators first
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Expectation = Literal[
    "fuse",  # one fused operator, affine included
    "fuse_core",  # the core is fused, a run-time or per-token affine stays outside
    "fuse_scaled",  # exact once epsilon and scale are rescaled (Bessel's correction)
    "fuse_transpose",  # between two Transposes, or in place where the runtime has an axis
    "fuse_reshape",  # on a reshaped view
    "fuse_eps",  # a clamped L1 or L2 norm: exact only above the clamp
    "fuse_l2",  # the same, written as an RMSNorm
    "fuse_rms",  # an L2 norm with epsilon in the root: an RMSNorm, rescaled
    "fold",  # into the weights of the linear operator beside it
    "fold_hard",  # the same, through a Reshape
    "keep",  # a BatchNorm that stays, or a normalization without an operator
    "nofuse",  # looks like one and is not, or only in part
    "constfold",  # of weights alone: computed once
]

PROMISED = ("fuse", "fuse_core", "fuse_scaled", "fuse_transpose", "fuse_reshape", "constfold")
"""The expectations of which a share is promised."""

MAY_STAY = ("fuse_eps", "fuse_l2", "keep", "nofuse")
"""The expectations that a refusal with a reason fulfils as well."""


@dataclass(frozen=True)
class Spelling:
    """One module.

    room: the file that builds it, under the same name.
    family: LN, RMS, GN, IN, LP, GRN, BN or WN.
    sites: how many normalizations it holds.
    torchscript: whether the TorchScript exporter can write it.
    preserved: whether it is exported with training=PRESERVE too, which leaves every BatchNorm in place.
    bfloat16: whether it is exported in bfloat16 too.
    """

    room: str
    name: str
    family: str
    expectation: Expectation
    sites: int = 1
    torchscript: bool = True
    preserved: bool = False
    bfloat16: bool = False

    @property
    def promised(self) -> bool:
        """Whether it is one of those of which a share is promised."""
        return self.expectation in PROMISED


@dataclass(frozen=True)
class Way:
    """An exporter, an opset, a dtype, and whether the batch (and the number of tokens) may vary."""

    exporter: str
    opset: int
    dtype: str
    dynamic: bool = False

    @property
    def name(self) -> str:
        """Such as fp32-ts~16."""
        return f"{self.dtype}-{self.exporter}{'~' if self.dynamic else ''}{self.opset}"


_DYNAMO = (
    *(Way("dy", opset, "fp32") for opset in (18, 20, 23)), Way("dy", 18, "fp32", dynamic=True),
    *(Way("dyd", opset, "fp32") for opset in (18, 23)), Way("dyd", 18, "fp32", dynamic=True),
    Way("dyraw", 18, "fp32"),
)  # fmt: skip
_DYNAMO_HALF = (("dy", 18), ("dy", 23), ("dyd", 18))
_SCRIPT = (
    *(Way("ts", opset, "fp32") for opset in (11, 13, 16, 17, 18)),
    *(Way("ts", opset, "fp32", dynamic=True) for opset in (16, 17)),
)
_SCRIPT_HALF = (("ts", 13), ("ts", 17))
_PRESERVED = (Way("tsp", 13, "fp32"), Way("tsp", 17, "fp32"), Way("tsp", 13, "fp16"))


def ways(spelling: Spelling) -> Iterator[Way]:
    """Every way to export one module, float32 first."""
    yield from _DYNAMO
    if spelling.torchscript:
        yield from _SCRIPT
    if spelling.preserved:
        yield from _PRESERVED
    half = _DYNAMO_HALF + (_SCRIPT_HALF if spelling.torchscript else ())
    for dtype in ("fp16", *(("bf16",) if spelling.bfloat16 else ())):
        yield from (Way(exporter, opset, dtype) for exporter, opset in half)


Row = tuple[str, str, Expectation] | tuple[str, str, Expectation, dict[str, Any]]

_LAYER_NORMS: tuple[Row, ...] = (
    ("ln", "LN", "fuse", {"bfloat16": True}),
    ("ln_noaffine", "LN", "fuse"),
    ("ln_multidim", "LN", "fuse"),
    ("ln_man_var_biased", "LN", "fuse"),
    ("ln_man_var_unbiased", "LN", "fuse_scaled"),
    ("ln_man_std_eps_outside", "LN", "nofuse"),
    ("ln_man_sqrt_eps_outside", "LN", "nofuse"),
    ("ln_man_sq_mul", "LN", "fuse"),
    ("ln_man_rsqrt_fp32", "LN", "fuse"),
    ("ln_man_pow_neg_half", "LN", "fuse"),
    ("ln_man_var_mean", "LN", "fuse"),
    ("ln_man_sum_div", "LN", "fuse"),
    ("ln_man_axis1_T", "LN", "fuse"),
    ("ln_olmo", "LN", "fuse"),
    ("ln_scale_per_token", "LN", "fuse_core"),
    ("ln_prenorm_residual", "LN", "fuse", {"sites": 2}),
    ("ln_io", "LN", "fuse"),
    ("adaln_dit", "LN", "fuse_core"),
    ("ln2d_permute", "LN", "fuse"),
    ("ln2d_convnext_hf", "LN", "fuse"),
)
_RMS_NORMS: tuple[Row, ...] = (
    ("rms", "RMS", "fuse", {"torchscript": False, "bfloat16": True}),
    ("rms_noaffine", "RMS", "fuse", {"torchscript": False}),
    ("rms_functional", "RMS", "fuse", {"torchscript": False}),
    ("rms_llama", "RMS", "fuse", {"bfloat16": True}),
    ("rms_gemma", "RMS", "fuse", {"bfloat16": True}),
    ("rms_t5", "RMS", "fuse"),
    ("rms_olmo2", "RMS", "fuse"),
    ("rms_gpt_oss", "RMS", "fuse"),
    ("rms_residual", "RMS", "fuse"),
    ("rms_man_mulsq", "RMS", "fuse"),
    ("rms_man_normalize_sqrtd", "RMS", "fuse_l2"),
    ("rms_man_pow_neg_half", "RMS", "fuse"),
    ("rms_man_sumsq_div", "RMS", "fuse"),
    ("rms_grouped", "RMS", "fuse_reshape"),
    ("rms_channels_first", "RMS", "fuse_transpose"),
    ("rms_io_large", "RMS", "fuse"),
    ("l2_div_norm", "LP", "fuse"),
    ("l2_normalize", "LP", "fuse_eps"),
    ("l1_normalize", "LP", "fuse_eps"),
    ("l2_div_norm_eps", "LP", "nofuse"),
    ("l2_rsqrt_eps", "LP", "fuse_rms"),
)
_SPATIAL_NORMS: tuple[Row, ...] = (
    ("gn", "GN", "fuse", {"bfloat16": True}),
    ("gn_1d", "GN", "fuse"),
    ("gn_silu", "GN", "fuse"),
    ("gn_sigmul", "GN", "fuse"),
    ("gn_ada", "GN", "fuse_core"),
    ("grn_convnextv2", "GRN", "keep"),
    ("in1d", "IN", "fuse", {"preserved": True}),
    ("in2d", "IN", "fuse", {"preserved": True}),
    ("in3d", "IN", "fuse", {"preserved": True}),
    ("in2d_affine", "IN", "fuse", {"preserved": True}),
    ("adain", "IN", "fuse_core", {"preserved": True}),
)
_BATCH_NORMS: tuple[Row, ...] = (
    ("conv1d_bn", "BN", "fold"),
    ("conv2d_bn", "BN", "fold", {"bfloat16": True}),
    ("conv3d_bn", "BN", "fold"),
    ("conv2d_bias_bn", "BN", "fold"),
    ("conv2d_bn_eps1e-3", "BN", "fold"),
    ("conv2d_group_bn", "BN", "fold"),
    ("convT2d_bn", "BN", "fold"),
    ("convT2d_group_bn_nobias", "BN", "fold"),
    ("linear_nobias_bn1d", "BN", "fold"),
    ("conv_reflectpad_bn", "BN", "fold"),
    ("conv_addconst_bn", "BN", "fold"),
    ("conv_shared_two_bn", "BN", "fold", {"sites": 2}),
    ("linear3d_flatten_bn1d", "BN", "fold_hard"),
    ("bn_alone", "BN", "keep"),
    ("bn_conv_pad", "BN", "keep"),
    ("bn_relu_conv", "BN", "keep"),
    ("conv_fanout_bn", "BN", "keep"),
    ("linear3d_bn1d_T", "BN", "keep"),
    ("bn_track_false", "BN", "keep"),
    ("weight_norm_old", "WN", "constfold"),
    ("spectral_norm_param", "WN", "constfold", {"torchscript": False, "preserved": False}),
)


def _spellings(room: str, rows: tuple[Row, ...], **common: Any) -> dict[str, Spelling]:
    return {
        name: Spelling(room, name, family, expectation, **(common | (own[0] if own else {})))
        for name, family, expectation, *own in rows
    }


SPELLINGS: dict[str, Spelling] = {
    **_spellings("layer_norms", _LAYER_NORMS),
    **_spellings("rms_norms", _RMS_NORMS),
    **_spellings("spatial_norms", _SPATIAL_NORMS),
    **_spellings("batch_norms", _BATCH_NORMS, preserved=True),
}
"""Every module by name."""
