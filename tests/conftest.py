"""What all tests share: `small_models` beside this file can be imported, and hypothesis runs the same each time."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile(
    "normfuse", derandomize=True, deadline=None, database=None, print_blob=False
)
hypothesis.settings.load_profile("normfuse")
