"""Does a rewritten model still compute the same?

`check` judges the rewrites between two models, one by one and together; `verify` compares any two models,
and `locate` finds where they begin to differ.
"""

from normfuse.parity.check import UnverifiedError, check, verify
from normfuse.parity.given import read_inputs
from normfuse.parity.locate import Located, locate
from normfuse.parity.settings import Boundary, Settings
from normfuse.parity.verdict import ModelVerdict, OutputFigures, Parity, SiteVerdict

__all__ = [
    "Boundary",
    "Located",
    "ModelVerdict",
    "OutputFigures",
    "Parity",
    "Settings",
    "SiteVerdict",
    "UnverifiedError",
    "check",
    "locate",
    "read_inputs",
    "verify",
]
