"""Fixtures of the model_io tests; what they are built from is in files."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from io_files import save, text_model

__all__ = ["save", "text_model"]
