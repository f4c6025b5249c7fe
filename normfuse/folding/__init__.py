"""Constant per-channel affines, and every BatchNormalization that is one, into the weights beside them."""

from normfuse.folding.chains import rejoin
from normfuse.folding.fold import fold_all
from normfuse.folding.plan import FoldRecord

__all__ = ["FoldRecord", "fold_all", "rejoin"]
